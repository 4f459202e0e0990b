// Media beside a message: from a file, a drop or the clipboard; checked, shown, and sent as data: URLs.

const MIME_TYPES = new Map(Object.entries({
  jpg: "image/jpeg", jpeg: "image/jpeg", png: "image/png",
  mp4: "video/mp4", avi: "video/x-msvideo", wmv: "video/x-ms-wmv",
  mp3: "audio/mpeg", wav: "audio/x-wav", flac: "audio/flac",
}));
const PLAYED = ["video/mp4", "audio/mpeg", "audio/x-wav", "audio/flac"];  // by browsers, beside images
const SHOWN_CHARACTERS = 48;
const attached = [];  // parts of the message that is being written
const nameOf = new WeakMap();  // part -> name of its file
let attaching = Promise.resolve();  // one file after the other: each counts for the next

/** Add files to the message that is being written, or say why not. */
function attach(files) {
  tellNotAttached("");
  for (const file of files) attaching = attaching.then(() => attachOne(file));
  return attaching;
}

async function attachOne(file) {
  try {
    const type = MIME_TYPES.get(file.name.split(".").pop().toLowerCase()) ?? [...MIME_TYPES.values()].find((one) => one === file.type);
    const words = whyNot(file, type);
    if (words) {
      tellNotAttached(words);
      return;
    }
    const kind = `${type.split("/")[0]}_url`;
    const part = { type: kind, [kind]: { url: `data:${type};base64,${await base64Of(file)}` } };
    nameOf.set(part, file.name);
    attached.push(part);
    showAttached();
  } catch (error) {
    tellNotAttached(`${file.name} cannot be read: ${error.message}`);
  }
}

/** What speaks against sending a file, with the limit and the setting that says so; "" if nothing does. */
function whyNot(file, type) {
  const { sizes, parts, request } = FACTS.media;
  if (type === undefined) return `${file.name} is none of ${[...MIME_TYPES.keys()].join(", ")}.`;
  if (file.size === 0) return `${file.name} is empty.`;
  const kind = type.split("/")[0];
  if (file.size > sizes[kind].most) {
    return `${file.name} has ${inMib(file.size)}; ${kind} files may have ${inMib(sizes[kind].most)} (${sizes[kind].setting}).`;
  }
  const there = [...turns.flatMap(mediaOf), ...attached];
  if (there.length >= parts.most) return `${file.name} is one too many: a request takes ${parts.most} (${parts.setting}), earlier turns included.`;
  const characters = there.reduce((sum, part) => sum + part[part.type].url.length, 0) + Math.ceil(file.size / 3) * 4;
  return characters < request.most ? ""
    : `With ${file.name} the request would have ${inMib(characters)} in Base64; it may have ${inMib(request.most)} (${request.setting}).`;
}

function mediaOf(message) {
  return Array.isArray(message.content) ? message.content.filter((part) => part.type !== "text") : [];
}

function inMib(size) {
  return `${Number((size / 1048576).toPrecision(size < 1048576 ? 2 : 4))} MiB`;
}

function base64Of(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** What is being written, as the content of a message: media in their order, then the text. */
function contentWith(words) {
  return attached.length === 0 ? words : [...attached, ...(words === "" ? [] : [{ type: "text", text: words }])];
}

function detachAll() {
  attached.length = 0;
  tellNotAttached("");
  showAttached();
}

function showAttached() {
  byId("attached").replaceChildren(...attached.map((part) => {
    const remove = element("button", { type: "button", "aria-label": `remove ${nameOf.get(part)}` }, "remove");
    remove.addEventListener("click", () => {
      attached.splice(attached.indexOf(part), 1);
      tellNotAttached("");
      showAttached();
      byId("attach").focus();
    });
    return element("li", {}, preview(part), element("span", {}, nameOf.get(part)), remove);
  }));
  showRequest();
}

/** The medium to look at or to listen to; its name where browsers cannot play it. */
function preview(part) {
  const { url } = part[part.type];
  const name = nameOf.get(part);
  if (part.type === "image_url") return element("img", { src: url, alt: name });
  if (!PLAYED.some((type) => url.startsWith(`data:${type};`))) return element("code", {}, name);
  const kind = part.type === "video_url" ? "video" : "audio";
  return element(kind, { src: url, controls: "", preload: "metadata", "aria-label": name });
}

/** Messages for reading: of long data only the beginning. */
function shortForm(messages) {
  const short = (part) => {
    const url = part[part.type].url ?? "";
    if (url.length <= SHOWN_CHARACTERS) return part;
    return { ...part, [part.type]: { url: `${url.slice(0, SHOWN_CHARACTERS)}… (${url.length} characters)` } };
  };
  return messages.map((message) => (Array.isArray(message.content)
    ? { ...message, content: message.content.map((part) => (part.type === "text" ? part : short(part))) } : message));
}

function tellNotAttached(words) {
  byId("attach-wrong").textContent = words;
  byId("attach-wrong").hidden = words === "";
}

function listenForFiles() {
  const { sizes, parts } = FACTS.media;
  const kinds = [["images", "image"], ["videos", "video"], ["recordings", "audio"]];
  byId("media-note").textContent = "Attach, drop or paste "
    + `${kinds.map(([name, kind]) => `${name} of up to ${inMib(sizes[kind].most)}`).join(", ")}; ${parts.most} a request.`;
  byId("file").accept = [...MIME_TYPES.keys()].map((ending) => `.${ending}`).join(",");
  byId("attach").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => {
    attach([...byId("file").files]);
    byId("file").value = "";  // so that the same file can be chosen again
  });
  byId("say").addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attach([...event.clipboardData.files]);
  });
  takeDrops(byId("talk"));
}

/** Files dropped on `talk` are attached. Anywhere else they would make the browser leave the page for the file. */
function takeDrops(talk) {
  document.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    if (talk.contains(event.target)) talk.classList.add("dropping");
    else event.dataTransfer.dropEffect = "none";
  });
  document.addEventListener("drop", (event) => {
    if (event.dataTransfer.types.includes("Files")) event.preventDefault();
  });
  talk.addEventListener("dragleave", (event) => {
    if (!talk.contains(event.relatedTarget)) talk.classList.remove("dropping");
  });
  talk.addEventListener("drop", (event) => {
    talk.classList.remove("dropping");
    if (event.dataTransfer.files.length > 0) attach([...event.dataTransfer.files]);
  });
}

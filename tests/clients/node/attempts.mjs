// How a client's attempts are made and told: a line of JSON each. Run as `node with_X.mjs BASE_URL`.

export const MODEL = "m";
export const ANSWER = "It is 21 degrees.";
export const BASE_URL = process.argv[2];
export const user = (content) => [{ role: "user", content }];

/** Tell whether `does` works, and what it says where it does not. */
export async function attempt(what, does) {
  let problem = "";
  try {
    await does();
  } catch (error) {
    problem = `${error?.name}: ${error?.message}`.split("\n")[0];
  }
  console.log(JSON.stringify({ what, problem: problem.slice(0, 300) }));
}

export function equal(found, wanted) {
  const [one, other] = [found, wanted].map((value) => JSON.stringify(value));
  if (one !== other) throw new Error(`${one}, not ${other}`);
}

/** What `does` throws; an error when it throws nothing. */
export async function thrown(does, otherwise) {
  try {
    await does();
  } catch (error) {
    return error;
  }
  throw new Error(otherwise);
}

"""Reports of a run: console, ``results.yaml``, ``junit.xml``, ``report.html``."""

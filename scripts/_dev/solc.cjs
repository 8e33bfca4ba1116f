// The npm compiler behind the two calls that Ape makes of a native one: `--version` and `--standard-json`.
// It stands in where the native compiler cannot be downloaded; the bytecode is the same.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const root = path.resolve(__dirname, "..", "..");
const moduleFolder = path.join(root, "node_modules", "solc");
const option = (name) => {
  const at = process.argv.indexOf(name);
  return at < 0 ? undefined : process.argv[at + 1];
};

if (process.argv.includes("--version")) {
  // Loading the compiler only to ask its name takes a third of a second, so the answer is kept.
  const kept = path.join(root, ".cache", "solcx", "version.txt");
  let version;
  try {
    version = fs.readFileSync(kept, "utf8");
  } catch {
    version = require(moduleFolder).version();
    fs.writeFileSync(kept, version);
  }
  process.stdout.write(`solc, the solidity compiler commandline interface\nVersion: ${version}\n`);
} else if (process.argv.includes("--standard-json")) {
  const folders = [option("--base-path") ?? process.cwd(), option("--include-path")].filter(Boolean);
  const readImport = (name) => {
    for (const folder of folders) {
      const file = path.resolve(folder, name);
      if (fs.existsSync(file)) return { contents: fs.readFileSync(file, "utf8") };
    }
    return { error: `not found: ${name}` };
  };
  const input = fs.readFileSync(0, "utf8");
  process.stdout.write(require(moduleFolder).compile(input, { import: readImport }));
} else {
  process.stderr.write("solc.cjs answers --version and --standard-json only\n");
  process.exitCode = 1;
}

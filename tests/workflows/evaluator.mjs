// Evaluates expressions of GitHub Actions with GitHub's own evaluator. Reads a request a line from stdin, answers a line:
//   {expression, contexts, statuses, folder} -> {value, text} or {error}
// `contexts` are the only names that exist there; `statuses` are the values of success(), failure(), always() and
// cancelled() where those may be called; `folder` is where hashFiles() looks, where that may be called.
// Usage: node evaluator.mjs FOLDER_OF_THE_PACKAGE
import {createHash} from 'node:crypto';
import {existsSync, readFileSync} from 'node:fs';
import path from 'node:path';
import {createInterface} from 'node:readline';
import {pathToFileURL} from 'node:url';

const library = path.join(process.argv[2], 'dist', 'index.js');
const {Evaluator, Lexer, Parser, data} = await import(pathToFileURL(library));

function hashFiles(folder, names) {
  if (/[*?![]/.test(names.join())) throw new Error('hashFiles: only names are supported here');
  const found = names.map(name => path.join(folder, name)).filter(name => existsSync(name));
  return found.length ? createHash('sha256').update(found.map(name => readFileSync(name)).join()).digest('hex') : '';
}

function functionsFor({statuses, folder}) {
  const known = Object.entries(statuses ?? {}).map(([name, value]) => ({
    name, minArgs: 0, maxArgs: 0, call: () => new data.BooleanData(value),
  }));
  if (folder) {
    const call = (...patterns) => new data.StringData(hashFiles(folder, patterns.map(one => one.coerceString())));
    known.push({name: 'hashFiles', minArgs: 1, maxArgs: 255, call});
  }
  return known;
}

function answer(request) {
  const functions = functionsFor(request);
  const {tokens} = new Lexer(request.expression).lex();
  const tree = new Parser(tokens, Object.keys(request.contexts), functions).parse();
  const values = JSON.parse(JSON.stringify(request.contexts), data.reviver);
  const found = new Evaluator(tree, values, new Map(functions.map(one => [one.name.toLowerCase(), one]))).evaluate();
  return {value: JSON.parse(JSON.stringify(found, data.replacer)), text: found.coerceString()};
}

for await (const line of createInterface({input: process.stdin})) {
  let said;
  try {
    said = answer(JSON.parse(line));
  } catch (error) {
    said = {error: error.message};
  }
  process.stdout.write(JSON.stringify(said) + '\n');
}

// Checks dashboards against the types in the file of the first argument. Prints each error with its file and line.
import fs from 'node:fs';
import path from 'node:path';
import ts from 'typescript';

const [types, ...dashboards] = process.argv.slice(2);
const head = ["import type { Dashboard } from './types';", 'export const dashboard: Dashboard ='];
// JSON is an expression of TypeScript. All files are read as if they were here, where the packages are installed.
const module = (file) => path.resolve(`${path.basename(file)}.ts`);
const sources = { [path.resolve('types.ts')]: fs.readFileSync(types, 'utf8') };
for (const file of dashboards) sources[module(file)] = [...head, fs.readFileSync(file, 'utf8')].join('\n');

const options = {
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
  noEmit: true,
  strict: true,
  types: [],
};
const host = ts.createCompilerHost(options);
const { fileExists, readFile } = host;
host.fileExists = (file) => file in sources || fileExists(file);
host.readFile = (file) => sources[file] ?? readFile(file);

const errors = ts.getPreEmitDiagnostics(ts.createProgram(Object.keys(sources), options, host));
for (const { file, start, messageText } of errors) {
  const dashboard = dashboards.find((name) => module(name) === file?.fileName);
  const name = dashboard ? path.basename(dashboard) : (file?.fileName ?? 'compiler');
  const line = file ? file.getLineAndCharacterOfPosition(start).line + 1 - (dashboard ? head.length : 0) : 0;
  console.log(`${name}:${line}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`);
}
process.exitCode = errors.length === 0 ? 0 : 1;

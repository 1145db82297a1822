/**
 * `npm run cost [-- setting resource] [-- --count]`: what a change costs. Applies each trial change of bench/cost/ to the last commit,
 * in a scratch worktree, where it has to build and to pass its test, and prints how many files of `src` it touches. Then it counts
 * what makes changes dear. With names: only these trials; with `--count`: without building them. It fails when a trial does
 * not apply any more, or a figure is over its limit.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, normalize, resolve } from 'node:path';
import { agentOpenApi as agentDocument } from '../src/agent/api/agent-openapi.ts';
import { managementOpenApi as managementDocument } from '../src/management/management-openapi.ts';
import { describedMembers } from '../test/support/openapi-check.ts';

const TRIALS = 'bench/cost';
/** Source files that each trial may touch. */
const LIMITS: Readonly<Record<string, number>> = { setting: 3, 'event-type': 2, 'device-member': 3, resource: 6 };
/** More source files than that are too many for one change. */
const MANY = 6;
/** Commits that are looked at, newest first. */
const COMMITS = 20;
const MAX_OUTPUT = 1 << 28;

const chosen = process.argv.slice(2).filter((arg) => !arg.startsWith('--'));
const isBuilt = !process.argv.includes('--count');

process.stdout.write('Source files that a trial change touches\n');
for (const file of readdirSync(TRIALS)) {
  const trial = basename(file, '.patch');
  if (chosen.length > 0 && !chosen.includes(trial)) continue;
  const patch = resolve(TRIALS, file);
  const paths = [...readFileSync(patch, 'utf8').matchAll(/^\+\+\+ b\/(.*)$/gm)].map(([, path = '']) => path);
  git(['apply', '--check', patch]);
  if (isBuilt) tryOut(patch, paths);
  row(trial, paths.filter(isSource).length, LIMITS[trial]);
}
if (chosen.length === 0) count();

function git(args: string[], cwd = process.cwd()): string {
  return execFileSync('git', args, { cwd, encoding: 'utf8', maxBuffer: MAX_OUTPUT });
}

function isSource(path: string): boolean {
  return /^src\/.*\.tsx?$/.test(path);
}

/** @throws when the change does not apply any more, so that it has to be written anew, or does not work */
function tryOut(patch: string, paths: readonly string[]): void {
  const folder = mkdtempSync(join(tmpdir(), 'device-agent-cost-'));
  const tree = join(folder, 'tree');
  git(['worktree', 'add', '--quiet', '--detach', tree]);
  try {
    symlinkSync(resolve('node_modules'), join(tree, 'node_modules'));
    git(['apply', patch], tree);
    const tests = paths.filter((path) => path.endsWith('.test.ts'));
    const isOfPages = paths.some((path) => path.startsWith('src/web/'));
    const steps = [['tsc', '--noEmit'], ...(isOfPages ? [['tsc', '-p', 'src/web']] : []), ['vitest', 'run', ...tests]];
    for (const step of steps) {
      const { status, stdout } = spawnSync('npx', step, { cwd: tree, encoding: 'utf8', maxBuffer: MAX_OUTPUT });
      if (status !== 0) throw new Error(`${patch}: ${step.join(' ')} fails:\n${stdout}`);
    }
  } finally {
    git(['worktree', 'remove', '--force', tree]);
    rmSync(folder, { recursive: true, force: true });
  }
}

function count(): void {
  const paths = git(['ls-files', 'src']).split('\n').filter(isSource);
  const texts = new Map(paths.map((path) => [path, readFileSync(path, 'utf8')]));
  const names = paths.map((path) => basename(path).replace(/\.tsx?$/, ''));
  process.stdout.write('\nWhat makes changes dear\n');
  row(
    'files that know reserved addresses',
    [...texts.values()].filter((text) => /reserved_?addr/i.test(text)).length,
    7,
  );
  const bag = /\binterface \w*(?:Options|Parts|Deps|Dependencies|Start)\b/g;
  row(
    'interfaces …Options, …Parts, …Deps, …Dependencies, …Start',
    [...texts.values()].flatMap((text) => text.match(bag) ?? []).length,
    70,
  );
  row('base names of files more than once', repeated(names), 10);
  // A schema and its type may share a name.
  const exported = /^export (?:abstract )?(?:async )?(?:class|const|function|interface|type) (\w+)/gm;
  const exports = [...texts.values()].flatMap((text) => [
    ...new Set([...text.matchAll(exported)].map(([, name = '']) => name)),
  ]);
  row('exported names more than once', repeated(exports), 15);
  const imports = [...texts]
    .filter(([path]) => /^src\/(?:commands|doctor)\//.test(path))
    .flatMap(([path, text]) =>
      [...text.matchAll(/(?:from |import\()'(\.[^']+)'/g)].map(([, to = '']) => normalize(join(dirname(path), to))),
    );
  const inner = imports.filter((path) => /^src\/(?:agent|gateway)\//.test(path));
  row('files of agent and gateway that commands and doctor import', new Set(inner).size, 15);
  const api = { baseUrl: 'https://api.example.com', version: '' };
  row("members with a description, management API's OpenAPI, in %", share(managementDocument(api)));
  row("members with a description, agent's OpenAPI, in %", share(agentDocument('')));
  const commits = sourcesOfCommits().slice(0, COMMITS);
  row(
    `of the last ${COMMITS} commits to src, those with more than ${MANY} source files`,
    commits.filter((sources) => sources.length > MANY).length,
  );
}

/** The members with a description among those of a document, in percent. */
function share(document: object): number {
  const { all, described } = describedMembers(document);
  return Math.floor((100 * described) / all);
}

/** The source files with changed lines of each commit, newest first, without merges and commits that only move. */
function sourcesOfCommits(): string[][] {
  const commits = git(['log', '--no-merges', '--format=%x00', '--numstat', '--', 'src']).split('\0');
  const sources = commits.map((commit) => {
    const lines = commit.split('\n').map((line) => line.split('\t'));
    return lines
      .filter(([added, deleted, path = '']) => isSource(path) && Number(added) + Number(deleted) > 0)
      .map(([, , path = '']) => path);
  });
  return sources.filter((changed) => changed.length > 0);
}

function repeated(words: readonly string[]): number {
  return new Set(words.filter((word, at) => words.indexOf(word) !== at)).size;
}

function row(what: string, figure: number, atMost = Number.POSITIVE_INFINITY): void {
  const isOver = figure > atMost;
  if (isOver) process.exitCode = 1;
  process.stdout.write(`  ${what.padEnd(72)}${String(figure).padStart(4)}${isOver ? `, at most ${atMost}` : ''}\n`);
}

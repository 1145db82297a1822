import { readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import { dirname, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';

/** What `Profiler.takePreciseCoverage` answers, as far as it is read; offsets are characters of the script. */
interface ScriptCoverage {
  url: string;
  functions: { ranges: [{ startOffset: number; endOffset: number; count: number }] }[];
}

/** Functions as `script:start-end`. */
export type Functions = Set<string>;

/** The functions that ran, and those inside of them that did not. */
export interface Ran {
  ran: Functions;
  idle: Functions;
}

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** The calls of a process that runs with `--inspect`, counted by V8 (Chrome DevTools Protocol, domain Profiler). */
export class FunctionCoverage {
  readonly #waiting = new Map<number, (result: unknown) => void>();

  private constructor(private readonly socket: WebSocket) {
    socket.on('message', (text) => {
      const { id, result } = JSON.parse(String(text)) as { id: number; result: unknown };
      this.#waiting.get(id)?.(result);
      this.#waiting.delete(id);
    });
  }

  /** @param port the inspector's port of that process on loopback */
  static async of(port: number): Promise<FunctionCoverage> {
    const response = await fetch(`http://127.0.0.1:${port}/json/list`);
    const [target] = (await response.json()) as [{ webSocketDebuggerUrl: string }];
    const socket = new WebSocket(target.webSocketDebuggerUrl);
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const coverage = new FunctionCoverage(socket);
    await coverage.#call('Profiler.enable');
    await coverage.#call('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    return coverage;
  }

  /** The functions of this project's bundles that ran since the last call. */
  async take(): Promise<Ran> {
    const { result } = (await this.#call('Profiler.takePreciseCoverage')) as { result: ScriptCoverage[] };
    const ran: Functions = new Set();
    const idle: Functions = new Set();
    for (const { url, functions } of result) {
      if (!url.startsWith('file:') || url.includes('/node_modules/')) continue;
      for (const { ranges } of functions) {
        const [{ startOffset, endOffset, count }] = ranges;
        (count > 0 ? ran : idle).add(`${url}:${startOffset}-${endOffset}`);
      }
    }
    return { ran, idle };
  }

  close(): void {
    this.socket.close();
  }

  #id = 0;
  #call(method: string, params: object = {}): Promise<unknown> {
    const id = ++this.#id;
    this.socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve) => this.#waiting.set(id, resolve));
  }
}

/** Lines of source files below `src`, by file. */
export type SourceLines = Map<string, Set<number>>;

/**
 * Where the functions that ran stand in `src`. V8 takes a whole class for its constructor: of that, the methods that did not
 * run are left out, as is every other function inside of one that ran.
 *
 * @returns the lines by file; functions of packages are left out
 */
export function sourceLines({ ran, idle }: Ran): SourceLines {
  const lines: SourceLines = new Map();
  // Outer functions come before those inside of them.
  const functions = [...ran, ...idle].map((key) => {
    const [, url = '', start, end] = /^(.*):(\d+)-(\d+)$/.exec(key) ?? [];
    return { url, start: Number(start), end: Number(end), counts: ran.has(key) };
  });
  functions.sort((one, other) => one.start - other.start || other.end - one.end);
  for (const { url, start, end, counts } of functions) {
    const script = scriptAt(fileURLToPath(url));
    // A script's own top level runs once, when it is loaded.
    if (start === 0) continue;
    const first = script.source(start);
    const last = script.source(end - 1);
    if (first === null || last === null || first.file !== last.file || !first.file.startsWith('src/')) continue;
    const ofFile = lines.get(first.file) ?? new Set();
    if (counts) for (let line = first.line; line <= last.line; line++) ofFile.add(line);
    else for (const line of ownLines(first, last)) ofFile.delete(line);
    if (ofFile.size > 0) lines.set(first.file, ofFile);
  }
  return lines;
}

/** What may stand before a method on its first line. */
const BEFORE = /^\s*(?:(?:private|protected|public|override|static|async|get|set)\s+)*$/;
const COMMENT = /^\s*(?:\/\*\*|\*|\/\/)/;

/** The lines that hold nothing but a function and the comment before it. */
function ownLines(first: Place, last: Place): number[] {
  const text = sourceText(first.file);
  let from = first.line;
  if (BEFORE.test((text[from] ?? '').slice(0, first.column))) {
    while (COMMENT.test(text[from - 1] ?? '')) from -= 1;
  } else {
    from += 1;
  }
  const to = /^\s*}\s*[;,]?$/.test(text[last.line] ?? '') || from <= first.line ? last.line : last.line - 1;
  return Array.from({ length: Math.max(0, to - from + 1) }, (_, at) => from + at);
}

const sources = new Map<string, string[]>();

function sourceText(file: string): string[] {
  const known = sources.get(file) ?? readFileSync(resolve(ROOT, file), 'utf8').split('\n');
  sources.set(file, known);
  return known;
}

/** A place in a source file; both from 0. */
interface Place {
  file: string;
  line: number;
  column: number;
}

interface Script {
  /** Where a character of the script comes from; null for what the bundler added. */
  source(offset: number): Place | null;
}

const scripts = new Map<string, Script>();

function scriptAt(path: string): Script {
  const known = scripts.get(path);
  if (known) return known;
  const map = new SourceMap(JSON.parse(readFileSync(`${path}.map`, 'utf8')));
  const starts = [0];
  const text = readFileSync(path, 'utf8');
  for (let at = text.indexOf('\n'); at >= 0; at = text.indexOf('\n', at + 1)) starts.push(at + 1);
  const script: Script = {
    source: (offset) => {
      let [low, high] = [0, starts.length - 1];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if ((starts[middle] ?? 0) <= offset) low = middle;
        else high = middle - 1;
      }
      const entry = map.findEntry(low, offset - (starts[low] ?? 0));
      if (!('originalSource' in entry)) return null;
      const file = relative(ROOT, resolve(dirname(path), entry.originalSource));
      return { file, line: entry.originalLine, column: entry.originalColumn };
    },
  };
  scripts.set(path, script);
  return script;
}

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

/** The functions that ran, as `script:start-end`. */
export type Ran = Set<string>;

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
    const ran: Ran = new Set();
    for (const { url, functions } of result) {
      if (!url.startsWith('file:') || url.includes('/node_modules/')) continue;
      for (const { ranges } of functions) {
        const [{ startOffset, endOffset, count }] = ranges;
        if (count > 0) ran.add(`${url}:${startOffset}-${endOffset}`);
      }
    }
    return ran;
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
 * Where the functions stand in `src`.
 *
 * @returns the lines from a function's first to its last, by file; functions of packages are left out
 */
export function sourceLines(ran: Ran): SourceLines {
  const lines: SourceLines = new Map();
  for (const key of ran) {
    const [, url = '', start, end] = /^(.*):(\d+)-(\d+)$/.exec(key) ?? [];
    const script = scriptAt(fileURLToPath(url));
    // A script's own top level runs once, when it is loaded.
    if (Number(start) === 0) continue;
    const first = script.source(Number(start));
    const last = script.source(Number(end) - 1);
    if (first === null || last === null || first.file !== last.file || !first.file.startsWith('src/')) continue;
    const ofFile = lines.get(first.file) ?? new Set();
    for (let line = first.line; line <= last.line; line++) ofFile.add(line);
    lines.set(first.file, ofFile);
  }
  return lines;
}

interface Script {
  /** Where a character of the script comes from; null for what the bundler added. */
  source(offset: number): { file: string; line: number } | null;
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
      return { file: relative(ROOT, resolve(dirname(path), entry.originalSource)), line: entry.originalLine };
    },
  };
  scripts.set(path, script);
  return script;
}

import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { open, rename, rm, stat } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { EXIT_UNREACHABLE, hasErrno, messageOf, OperatorError } from '../lib/errors.ts';
import { explainUnwritable } from '../lib/files/durable-write.ts';
import { isLoopbackHost } from '../lib/network/ip-address.ts';
import type { ProxyRules } from '../lib/network/proxy-rules.ts';
import { systemClock } from '../lib/time/clock.ts';
import { type FetchOptions, requestTrusting } from '../management/fetch-trusting.ts';
import { MAX_MANIFEST_BYTES, type ReleaseFile, ReleaseRejected } from './release.ts';

/** Where releases come from: whatever it sends is checked against keys that the installation has. */
export interface ReleaseSource {
  /** As messages show it. */
  readonly shown: string;
  /** Whether it is a folder of this machine. */
  readonly isFolder?: boolean;
  /** Reads a file of the folder from a byte on. @throws {OperatorError} when it is unavailable */
  read(name: string, from: number): Promise<{ content: Readable; from: number }>;
}

/** Without a byte for so long, a download ends; the next one continues it. */
const SILENCE_MS = 30_000;
const MANIFEST_MS = 60_000;
const MAX_REDIRECTS = 5;

/**
 * @param from an https URL of a folder, or the path of one
 * @throws {OperatorError} when it is neither
 */
export function openSource(from: string, proxies: ProxyRules): ReleaseSource {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(from)) return folderSource(resolve(from));
  const url = URL.canParse(from) ? new URL(from) : null;
  if (url === null || !isAllowed(url) || url.search !== '' || url.hash !== '') {
    throw new OperatorError(`no source of releases: ${from}; give an https URL of a folder, or the path of one`, 2);
  }
  return serverSource(url, withSlash(url).href, {
    trust: { proxies },
    headers: {},
    redirects: MAX_REDIRECTS,
    patienceMs: 0,
  });
}

/** How a server with releases is asked. */
interface Asking {
  trust: FetchOptions;
  headers: Record<string, string>;
  /** How many redirects are followed, with the same headers. */
  redirects: number;
  /** For how long a server that is busy is asked again. */
  patienceMs: number;
}

/**
 * @param url of a folder
 * @param shown as messages show it
 */
export function serverSource(url: URL, shown: string, asking: Asking): ReleaseSource {
  const base = withSlash(url);
  const end = systemClock.now() + asking.patienceMs;
  return { shown, read: (name, offset) => readUrl(new URL(name, base), offset, { ...asking, end }) };
}

const withSlash = (url: URL): URL => (url.href.endsWith('/') ? url : new URL(`${url.href}/`));

/** Without TLS, only from this machine: others would see and delay what the device asks for. */
const isAllowed = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || (protocol === 'http:' && isLoopbackHost(hostname));

function folderSource(folder: string): ReleaseSource {
  return {
    shown: folder,
    isFolder: true,
    read: async (name, from) => {
      const path = join(folder, name);
      const file = await open(path).catch((error: unknown) => {
        throw unavailable(path, error);
      });
      return { content: file.createReadStream({ start: from }), from };
    },
  };
}

async function readUrl(
  url: URL,
  from: number,
  asking: Asking & { end: number },
): Promise<{ content: Readable; from: number }> {
  const message = await answerOf(url, from, asking).catch((error: unknown) => {
    throw unavailable(url.href, error);
  });
  const { statusCode: status = 0, headers } = message;
  if (status === 200) return { content: message, from: 0 };
  // Another range than the wanted one would be noticed by its digest, only later.
  if (status === 206 && headers['content-range']?.startsWith(`bytes ${from}-`)) return { content: message, from };
  message.destroy();
  // The part that is here is longer than the file that is there.
  if (status === 416 && from > 0) return readUrl(url, 0, asking);
  const { redirects, end } = asking;
  if (status >= 301 && status <= 308 && headers.location !== undefined && redirects > 0) {
    const next = URL.canParse(headers.location, url.href) ? new URL(headers.location, url) : null;
    if (next !== null && isAllowed(next)) return readUrl(next, from, { ...asking, redirects: redirects - 1 });
  }
  const waitMs = 1000 * Number(headers['retry-after'] ?? Number.NaN);
  if (status === 503 && systemClock.now() + waitMs < end) {
    await systemClock.sleep(waitMs);
    return readUrl(url, from, asking);
  }
  throw unavailable(url.href, new Error(`the server answered with status ${status}`));
}

function answerOf(url: URL, from: number, { trust, headers }: Asking): Promise<IncomingMessage> {
  const ended = new AbortController();
  const range = from > 0 ? { range: `bytes=${from}-` } : {};
  const asked = { ...headers, 'user-agent': 'device-agent', ...range };
  return new Promise((resolve, reject) => {
    const request = requestTrusting(url.href, { method: 'GET', headers: asked, signal: ended.signal }, trust);
    // Also covers the body.
    request.setTimeout(SILENCE_MS, () => request.destroy(new Error(`nothing arrived for ${SILENCE_MS / 1000} s`)));
    request
      .on('response', resolve)
      .on('error', reject)
      .on('close', () => ended.abort());
    request.end();
  });
}

/** Reads a manifest. @throws {OperatorError} when it is unavailable or too long */
export async function readManifest(source: ReleaseSource, name: string): Promise<string> {
  const { content } = await source.read(name, 0);
  const late = setTimeout(() => content.destroy(new Error(`slower than ${MANIFEST_MS / 1000} s`)), MANIFEST_MS);
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of content as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > MAX_MANIFEST_BYTES) {
        throw new ReleaseRejected(
          `release rejected: ${name} of ${source.shown} is longer than ${MAX_MANIFEST_BYTES} bytes`,
        );
      }
      pieces.push(piece);
    }
  } catch (error) {
    throw error instanceof OperatorError ? error : unavailable(`${name} of ${source.shown}`, error);
  } finally {
    clearTimeout(late);
    content.destroy();
  }
  return Buffer.concat(pieces).toString();
}

/**
 * Fetches a file of a release, and checks its size and digest. A part that an earlier call left is completed.
 *
 * @param path where the file gets its name only when it is whole
 * @throws {ReleaseRejected} when it is another file than the signed one; {OperatorError} when it is unavailable
 */
export async function download(source: ReleaseSource, file: ReleaseFile, path: string): Promise<void> {
  const part = `${path}.part`;
  const present = await sizeOf(part);
  if (present > file.size) await rm(part);
  // A whole part needs only to be checked.
  if (present !== file.size) await fetchRest(source, file, part, present > file.size ? 0 : present);
  const digest = createHash('sha256');
  await pipeline(createReadStream(part), digest);
  if (digest.digest('hex') !== file.sha256) {
    await rm(part);
    throw new ReleaseRejected(
      `release rejected: ${file.name} of ${source.shown} is not the file that was signed; it was deleted; try again, or ask its publisher`,
    );
  }
  await rename(part, path);
}

async function fetchRest(source: ReleaseSource, file: ReleaseFile, part: string, present: number): Promise<void> {
  const { content, from } = await source.read(file.name, present);
  let size = from;
  const limited = async function* (pieces: AsyncIterable<Buffer>) {
    for await (const piece of pieces) {
      size += piece.length;
      // An endless file must not fill the disk.
      if (size > file.size)
        throw new ReleaseRejected(`release rejected: ${file.name} of ${source.shown} is longer than signed`);
      yield piece;
    }
  };
  const written = createWriteStream(part, { flags: from > 0 ? 'a' : 'w', mode: 0o600, flush: true });
  try {
    await pipeline(content, limited, written);
  } catch (error) {
    // A write that is under way still ends, and the next call goes on where it has ended.
    if (!written.closed) await new Promise<void>((resolve) => written.once('close', resolve));
    if (error instanceof ReleaseRejected) {
      await rm(part, { force: true });
      throw error;
    }
    throw interrupted(error, file, source, part);
  }
  if (size < file.size) throw interrupted(new Error('it ended early'), file, source, part);
}

function interrupted(error: unknown, { name }: ReleaseFile, { shown }: ReleaseSource, part: string): unknown {
  const explained = explainUnwritable(part, error);
  if (explained instanceof OperatorError) return explained;
  const problem = `download interrupted: ${name} of ${shown}: ${messageOf(error)}; repeat the command, which continues it`;
  return new OperatorError(problem, EXIT_UNREACHABLE, { cause: error });
}

async function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    ({ size }) => size,
    (error: unknown) => {
      if (hasErrno(error, 'ENOENT')) return 0;
      throw error;
    },
  );
}

function unavailable(what: string, error: unknown): OperatorError {
  const problem = hasErrno(error, 'ENOENT') ? 'no such file' : messageOf(error);
  return new OperatorError(
    `release unavailable: ${what}: ${problem}; check the address and the network`,
    EXIT_UNREACHABLE,
    {
      cause: error,
    },
  );
}

import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { resolve, sep } from 'node:path';
import { beginningProblem } from '../../lib/http/response-head.ts';
import { isLoopbackHost } from '../../lib/network/ip-address.ts';
import { displayUpstream, type TcpUpstream, type Upstream } from '../../lib/network/upstream-address.ts';
import { type ConnectionOptions, connectUpstream } from './connect-upstream.ts';

export interface CheckOptions extends ConnectionOptions {
  /** A file of the agent that no upstream should serve. */
  privateFile: string;
}

/** The requests of a check: the first has the least effect, but small servers close the connection on it, or hang. */
export const PROBES = ['OPTIONS', 'GET', 'HEAD'] as const;
export type UpstreamProbe = (typeof PROBES)[number];

/** What a request has shown; null: no problem. */
export interface HttpFindings {
  /** Why HTTP/1.1 requests fail there, and what to do. */
  readonly problem: string | null;
  /** Whether clients may get responses all the same, by requests that the check did not try. */
  readonly isDoubtful?: boolean;
  /** The request to begin with next time, as far as this has shown one. */
  readonly probe?: UpstreamProbe;
  /** The path under which the upstream serves the agent's own data folder. */
  readonly exposedPath: string | null;
}

const ANY_TLS = { upstream_tls_verify: false, upstream_tls_min_version: '1.0' } as const;
/** `HTTP/1.1 400` */
const STATUS_BYTES = 12;
/** Some hang on OPTIONS, and serve nobody meanwhile. */
const OPTIONS_MS = 1_000;
/** The first byte of a TLS alert. */
const TLS_ALERT = '\x15';
const HEAD_END = '\r\n\r\n';
/** Of a served file that is compared. */
const COMPARED_BYTES = 64 * 1024;
const MAX_ANSWER = 2 * COMPARED_BYTES;
/** Ends of the data folder's path that a server above it may use: `/data`, `/device-agent/data`, … */
const MAX_FOLDERS = 4;

/**
 * Asks the upstream of an http tunnel whether it speaks HTTP/1.1, and whether a server on this machine serves the agent's
 * data folder, as one does that was started in a folder above it.
 *
 * @param socket a connection to it, which is used up
 * @param probes the requests to try, each on a connection of its own, until one gets a response of HTTP
 */
export async function checkHttp(
  socket: Socket,
  upstream: Upstream,
  options: CheckOptions,
  probes: readonly UpstreamProbe[] = PROBES,
): Promise<HttpFindings> {
  const { answer, probe } = await firstAnswer(socket, upstream, options, probes);
  // No answer is none to judge by: the upstream may be slow.
  if (answer === null) return { problem: null, exposedPath: null, ...(probe && { probe }) };
  const isHttp = isHttpAnswer(answer);
  const isSsh = answer.startsWith('SSH-');
  // Servers such as nginx and Go answer 400 to plain HTTP where they expect TLS.
  const mayBeTls = (!isHttp && !isSsh) || answer.startsWith(' 400', 'HTTP/1.1'.length);
  if (mayBeTls && upstream.kind === 'tcp' && upstream.scheme !== 'https' && (await speaksTls(upstream, options))) {
    const https = displayUpstream({ ...upstream, scheme: 'https' });
    return { problem: `answers with TLS: forward to ${https}`, exposedPath: null };
  }
  if (isHttp) return { problem: null, exposedPath: await exposedPath(upstream, options), ...(probe && { probe }) };
  const problem = `${otherProtocol(answer)}: forward to an HTTP server, or use a tcp tunnel`;
  return { problem, exposedPath: null, isDoubtful: !isSsh };
}

/** The first answer that settles what the upstream speaks, and the request that got it, or comes next. */
async function firstAnswer(
  socket: Socket,
  upstream: Upstream,
  options: CheckOptions,
  probes: readonly UpstreamProbe[],
): Promise<{ answer: string | null; probe: UpstreamProbe | undefined }> {
  let answer: string | null = null;
  for (const [at, probe] of probes.entries()) {
    // One that takes a single connection, and has not freed it yet, refuses the next one.
    const connection = at === 0 ? socket : await connectUpstream(upstream, options).catch(() => null);
    if (connection === null) return { answer: null, probe };
    const [path, ms] = probe === 'OPTIONS' ? ['*', Math.min(OPTIONS_MS, options.connectMs)] : ['/', options.connectMs];
    answer = await ask(connection, probe, path, upstream, ({ length }) => length >= STATUS_BYTES, ms);
    if (answer === null) return { answer, probe: probes[at + 1] };
    if (isHttpAnswer(answer) || answer.startsWith('SSH-') || answer.startsWith(TLS_ALERT)) return { answer, probe };
  }
  return { answer, probe: undefined };
}

/** As the gateway reads the beginning of a response, so that clients and checks agree. */
function isHttpAnswer(answer: string): boolean {
  return answer !== '' && beginningProblem(answer) === null;
}

function otherProtocol(answer: string): string {
  if (answer === '') return 'closes connections without an answer to HTTP';
  return answer.startsWith('SSH-') ? 'answers with SSH' : 'answers with another protocol than HTTP';
}

async function speaksTls(upstream: TcpUpstream, options: CheckOptions): Promise<boolean> {
  try {
    (await connectUpstream({ ...upstream, scheme: 'https' }, { ...options, tls: ANY_TLS })).destroy();
    return true;
  } catch {
    return false;
  }
}

/** Looks for the private file below each end of its folder's path. */
async function exposedPath(upstream: Upstream, options: CheckOptions): Promise<string | null> {
  if (upstream.kind === 'tcp' && !isLoopbackHost(upstream.host)) return null;
  const content = (await readFile(options.privateFile, 'latin1').catch(() => '')).slice(0, COMPARED_BYTES);
  if (content === '') return null;
  // One that keeps the connection open, and takes no other, is not kept waiting for.
  const isEnough = (answer: string) => {
    const end = answer.indexOf(HEAD_END);
    return (
      end >= 0 && (!isOk(answer) || !content.startsWith(bodyOf(answer)) || bodyOf(answer).length === content.length)
    );
  };
  const parts = resolve(options.privateFile).split(sep);
  for (let from = parts.length - 1; from > 0 && from >= parts.length - 1 - MAX_FOLDERS; from--) {
    const path = `/${parts.slice(from).map(encodeURIComponent).join('/')}`;
    const socket = await connectUpstream(upstream, options);
    const answer = (await ask(socket, 'GET', path, upstream, isEnough, options.connectMs)) ?? '';
    const served = bodyOf(answer);
    if (isOk(answer) && served !== '' && served.startsWith(content.slice(0, served.length)))
      return path.slice(0, path.lastIndexOf('/') + 1);
  }
  return null;
}

const isOk = (answer: string) => /^HTTP\/1\.\d 200/.test(answer);

function bodyOf(answer: string): string {
  const end = answer.indexOf(HEAD_END);
  return end < 0 ? '' : answer.slice(end + HEAD_END.length);
}

/**
 * Sends a request, reads the start of the answer and closes the connection.
 *
 * @param isEnough whether the rest of an answer does not matter
 * @returns latin1; empty when the upstream ends the connection, null when it says nothing in time
 */
function ask(
  socket: Socket,
  method: string,
  path: string,
  upstream: Upstream,
  isEnough: (answer: string) => boolean,
  ms: number,
): Promise<string | null> {
  const host = upstream.kind === 'tcp' ? displayUpstream({ ...upstream, scheme: null }) : 'localhost';
  return new Promise((settle) => {
    let answer = '';
    const end = (result: string | null) => {
      clearTimeout(late);
      socket.destroy();
      settle(result);
    };
    const late = setTimeout(() => end(answer === '' ? null : answer), ms);
    socket.setEncoding('latin1');
    socket.on('data', (text: string) => {
      answer += text;
      if (isEnough(answer) || answer.length > MAX_ANSWER) end(answer);
    });
    // A reset is an end without an answer, too.
    socket.once('close', () => end(answer));
    socket.once('end', () => end(answer));
    socket.write(
      `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\nUser-Agent: device-agent\r\nConnection: close\r\n\r\n`,
      'latin1',
    );
    socket.resume();
  });
}

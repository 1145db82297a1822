import { readFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { resolve, sep } from 'node:path';
import { isLoopbackHost } from '../../lib/network/ip-address.ts';
import { type ConnectionOptions, connectUpstream } from './connect-upstream.ts';
import { displayUpstream, type TcpUpstream, type Upstream } from './upstream.ts';

export interface CheckOptions extends ConnectionOptions {
  /** A file of the agent that no upstream should serve. */
  privateFile: string;
}

/** What a request has shown; null: no problem. */
export interface HttpFindings {
  /** Why HTTP/1.1 requests fail there, and what to do. */
  readonly problem: string | null;
  /** The path under which the upstream serves the agent's own data folder. */
  readonly exposedPath: string | null;
}

/** `HTTP/1.1 400` */
const STATUS_BYTES = 12;
/** Of a served file that is compared. */
const COMPARED_BYTES = 64 * 1024;
/** Ends of the data folder's path that a server above it may use: `/data`, `/device-agent/data`, … */
const MAX_FOLDERS = 4;

/**
 * Asks the upstream of an http tunnel whether it speaks HTTP/1.1, and whether a server on this machine serves the agent's
 * data folder, as one does that was started in a folder above it.
 *
 * @param socket a connection to it, which is used up
 */
export async function checkHttp(socket: Socket, upstream: Upstream, options: CheckOptions): Promise<HttpFindings> {
  const answer = await ask(socket, 'OPTIONS', '*', upstream, STATUS_BYTES, options.connectMs);
  // No answer is none to judge by: the upstream may be slow.
  if (answer === null) return { problem: null, exposedPath: null };
  const isHttp = answer.startsWith('HTTP/1.');
  // Servers such as nginx and Go answer 400 to plain HTTP where they expect TLS.
  const mayBeTls = (!isHttp && !answer.startsWith('SSH-')) || answer.startsWith(' 400', 'HTTP/1.1'.length);
  if (mayBeTls && upstream.kind === 'tcp' && upstream.scheme !== 'https' && (await speaksTls(upstream, options))) {
    const https = displayUpstream({ ...upstream, scheme: 'https' });
    return { problem: `answers with TLS: forward to ${https}`, exposedPath: null };
  }
  if (isHttp) return { problem: null, exposedPath: await exposedPath(upstream, options) };
  return { problem: `${otherProtocol(answer)}: forward to an HTTP server, or use a tcp tunnel`, exposedPath: null };
}

function otherProtocol(answer: string): string {
  if (answer === '') return 'closes connections without an answer to HTTP';
  return answer.startsWith('SSH-') ? 'answers with SSH' : 'answers with another protocol than HTTP';
}

async function speaksTls(upstream: TcpUpstream, options: CheckOptions): Promise<boolean> {
  try {
    (await connectUpstream({ ...upstream, scheme: 'https' }, { ...options, verifyTls: false })).destroy();
    return true;
  } catch {
    return false;
  }
}

/** Looks for the private file below each end of its folder's path. */
async function exposedPath(upstream: Upstream, options: CheckOptions): Promise<string | null> {
  if (upstream.kind === 'tcp' && !isLoopbackHost(upstream.host)) return null;
  const parts = resolve(options.privateFile).split(sep);
  for (let from = parts.length - 1; from > 0 && from >= parts.length - 1 - MAX_FOLDERS; from--) {
    const path = `/${parts.slice(from).map(encodeURIComponent).join('/')}`;
    const socket = await connectUpstream(upstream, options);
    const answer = await ask(socket, 'GET', path, upstream, COMPARED_BYTES, options.connectMs);
    const served = answer?.slice(answer.indexOf('\r\n\r\n') + 4) ?? '';
    if (!/^HTTP\/1\.\d 200/.test(answer ?? '') || served === '') continue;
    const content = await readFile(options.privateFile, 'latin1').catch(() => '');
    if (content !== '' && served.startsWith(content.slice(0, served.length)))
      return path.slice(0, path.lastIndexOf('/') + 1);
  }
  return null;
}

/**
 * Sends a request, reads the start of the answer and closes the connection.
 *
 * @returns up to `bytes` characters of latin1; empty when the upstream ends the connection, null when it says nothing in time
 */
function ask(
  socket: Socket,
  method: string,
  path: string,
  upstream: Upstream,
  bytes: number,
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
      if (answer.length >= bytes) end(answer.slice(0, bytes));
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

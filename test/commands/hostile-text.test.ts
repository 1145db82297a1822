import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { buildProgram } from '../../src/commands/program.ts';
import { messageOf } from '../../src/lib/errors.ts';
import { printableError } from '../../src/lib/terminal-text.ts';
import { listening } from '../support/loopback.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

/** Sets the title, clears the screen, hides text, turns it around, and pretends to be a line of the command. */
const EVIL = '\u001b]0;title\u0007\u001b[2J\u009b8m\u202e\u200b\u2028\r\n✔ Everything works.\u001b[8m';
const FORBIDDEN = /(?![\n\t])\p{Cc}|[\p{Cf}\p{Zl}]|^✔ Everything works/mu;

const NOW = new Date().toISOString();
const TUNNEL = {
  url: `https://a.example/${EVIL}`,
  url_part: EVIL,
  protocol: 'http',
  forwards_to: EVIL,
  domain: EVIL,
  policy: EVIL,
  notice: EVIL,
  status: 'degraded',
  since: NOW,
  created_at: EVIL,
  last_error: { code: EVIL, message: EVIL },
  upstream: { state: 'refused', since: NOW, checked_at: NOW, reason: EVIL },
  traffic: { connections: 1, requests: 1, bytes_in: 1, bytes_out: 1, last_at: NOW },
};
const STATUS = {
  version: EVIL,
  uptime_seconds: 1,
  session: { state: 'offline', since: NOW, gateway: EVIL, reconnects: 1, last_error: TUNNEL.last_error },
  tunnels: { total: 1, online: 0, degraded: 1, connecting: 0, offline: 0, failed: 0 },
  remote_api: { url: `https://agent.example/${EVIL}`, status: 'offline', since: NOW, last_error: TUNNEL.last_error },
  storage: { last_error: TUNNEL.last_error },
  addresses: { api: `http://127.0.0.1:4040/${EVIL}` },
};
const PARTS = { headers: [{ name: EVIL, value: EVIL }], trailers: [], body: null };
const REQUEST = {
  request: PARTS,
  response: { ...PARTS, http_version: '1.1', status_text: EVIL },
  id: '1',
  state: 'complete',
  kind: 'websocket',
  method: EVIL,
  path: EVIL,
  http_version: '1.1',
  status: 200,
  client: EVIL,
  started_at: NOW,
  duration_ms: 1,
  timing: { waiting_ms: 1 },
  messages: 1,
  gateway: null,
  captured: true,
  masked: false,
  error: EVIL,
};
const RECEIVED = {
  at: NOW,
  from: 'client',
  type: 'text',
  text: EVIL,
  base64: null,
  bytes: 9,
  event: EVIL,
  error: null,
};
const REFUSAL = { error_code: EVIL, status_code: 400, msg: EVIL, details: { [EVIL]: `${EVIL} again` } };

/** What an agent would answer that repeats what a gateway, a client and an upstream have said. */
function answerTo(path: string): unknown {
  if (path === '/status') return STATUS;
  if (path.endsWith('/messages')) return [RECEIVED];
  if (path.includes('/requests/1')) return REQUEST;
  return path === '/tunnels' || path.startsWith('/tunnels?') ? [TUNNEL] : TUNNEL;
}

let isRefusing: boolean;
let printed: string;
beforeEach(async () => {
  const server = createServer(({ method, url = '' }, res) => {
    if (isRefusing) return void res.writeHead(400).end(JSON.stringify(REFUSAL));
    res.end(JSON.stringify(url === '/tunnels' && method === 'POST' ? TUNNEL : answerTo(url)));
  });
  await listening(server);
  vi.stubEnv('AGENT_PORT', String((server.address() as AddressInfo).port));
  vi.stubEnv('DATA_DIR', temporaryFolder());
  vi.stubEnv('AGENT_API_TOKEN', 'a-token-of-my-own');
  printed = '';
  for (const stream of [process.stdout, process.stderr]) {
    vi.spyOn(stream, 'write').mockImplementation((text) => {
      printed += String(text);
      return true;
    });
  }
  return async () => void server.close();
});
afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
  process.exitCode = 0;
});

const COMMANDS = [
  'status',
  'page',
  'health --json',
  'http 8001',
  'tunnels list',
  'tunnels show a',
  'tunnels change a --forwards-to 8002',
  'tunnels delete a',
  'watch a --show 1',
  'watch a --replay 1',
];

it.each(COMMANDS.flatMap((command) => [command, `${command.replace(' --json', '')} --json`]))(
  'device-agent %s prints nothing of others that a terminal would carry out or take for another line',
  async (command) => {
    for (isRefusing of [false, true]) {
      const failed = await buildProgram()
        .parseAsync(command.split(' '), { from: 'user' })
        .then(
          () => null,
          (error: unknown) => printableError(`device-agent: ${messageOf(error)}`),
        );
      expect(`${printed}\n${failed}`).not.toMatch(FORBIDDEN);
      expect(failed !== null).toBe(isRefusing);
      printed = '';
    }
  },
);

it('only one file of the command line writes to the terminal', () => {
  const writing = readdirSync('src/commands', { recursive: true, encoding: 'utf8' }).filter(
    (name) =>
      name.endsWith('.ts') && /\.std(?:out|err)\.write\(/.test(readFileSync(join('src/commands', name), 'utf8')),
  );
  expect(writing).toEqual(['output.ts']);
});

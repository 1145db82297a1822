import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { freePorts } from './free-ports.ts';
import { listening } from './loopback.ts';
import { type Missing, programMissing } from './requirements.ts';
import { temporaryFolder } from './temporary-folder.ts';
import { until } from './until.ts';

interface Published {
  topic?: string;
  message?: string;
  title?: string;
  priority?: number;
  tags?: string[];
  click?: string;
  actions?: { action: string; label: string; url?: string }[];
}

/** A server of ntfy, at which one user may publish to one topic. */
export interface NtfyServer {
  readonly token: string;
  /** URL of a topic. @param name the one that may be published to by default */
  topic(name?: string): string;
  /** All that it has in the topic, as subscribers get it. */
  received(): Promise<Published[]>;
  /** Ends it, and starts it again at the same place. */
  away(): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

const TOPIC = 'quarry-alarms';

/** Why the program itself cannot be tried; null when it can. Other programs of this name know no `serve`. */
export const NO_NTFY: Missing = programMissing('ntfy', 'serve', '--help');

/** The program itself. */
export async function startNtfyProgram(): Promise<NtfyServer> {
  const folder = temporaryFolder();
  const { first: port } = await freePorts(1);
  const config = join(folder, 'server.yml');
  const settings = {
    ...{ 'base-url': `http://127.0.0.1:${port}`, 'listen-http': `127.0.0.1:${port}`, 'web-root': 'disable' },
    ...{ 'cache-file': join(folder, 'cache.db'), 'auth-file': join(folder, 'auth.db') },
    'auth-default-access': 'deny-all',
  };
  writeFileSync(
    config,
    Object.entries(settings)
      .map(([name, value]) => `${name}: "${value}"\n`)
      .join(''),
  );
  let child: ChildProcess;
  const start = async () => {
    child = spawn('ntfy', ['serve', '--config', config], { stdio: 'ignore' });
    const isUp = () =>
      fetch(`http://127.0.0.1:${port}/v1/health`).then(
        ({ ok }) => ok,
        () => false,
      );
    await until(isUp, 'ntfy to answer', { everyMs: 30 });
  };
  const end = async () => {
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  // All that it says is on the error output.
  const run = (...args: string[]) =>
    spawnSync('ntfy', args, { encoding: 'utf8', env: { ...process.env, NTFY_PASSWORD: 'not used' } }).stderr;
  await start();
  run('user', '--config', config, 'add', 'gateway');
  run('access', '--config', config, 'gateway', TOPIC, 'read-write');
  const token = /tk_\w+/.exec(run('token', '--config', config, 'add', 'gateway'))?.[0] ?? '';
  const topic = (name = TOPIC) => `http://127.0.0.1:${port}/${name}`;
  return {
    ...{ token, topic, received: () => receivedAt(topic(), token), close: end },
    away: async () => {
      await end();
      return start;
    },
  };
}

/** A server that answers what ntfy answers, of which the answers here are records: compared with the program where that is installed. */
export async function startNtfyRecord(): Promise<NtfyServer> {
  const token = 'tk_g4rr1vixc4xkei6ir56gqnq6e9yll';
  const published: Published[] = [];
  const server = ntfyRecord(token, published);
  const port = await listening(server);
  const topic = (name = TOPIC) => `http://127.0.0.1:${port}/${name}`;
  const end = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => void server.close(resolve));
  };
  return {
    ...{ token, topic, received: () => receivedAt(topic(), token), close: end },
    away: async () => {
      await end();
      return async () => {
        server.listen(port, '127.0.0.1');
        await once(server, 'listening');
      };
    },
  };
}

async function receivedAt(topic: string, token: string): Promise<Published[]> {
  const response = await fetch(`${topic}/json?poll=1`, { headers: { authorization: `Bearer ${token}` } });
  const lines = (await response.text()).split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as Published);
}

/** Bytes of a message, and of the JSON that has it. */
const MAX_MESSAGE = 4_096;
const MAX_BODY = 2 * MAX_MESSAGE;

function ntfyRecord(token: string, published: Published[]): Server {
  return createServer(async (req, res) => {
    const body = await text(req);
    const answer = (http: number, json: object) =>
      res.writeHead(http, { 'content-type': 'application/json' }).end(`${JSON.stringify(json)}\n`);
    const refuse = (code: number, error: string, section?: string) => {
      const http = Math.floor(code / 100);
      const link = section === undefined ? {} : { link: `https://ntfy.sh/docs/${section}` };
      answer(http, { code, http, error, ...link });
    };
    if (req.method === 'GET' && req.url === `/${TOPIC}/json?poll=1`)
      return void res.writeHead(200).end(published.map((each) => `${JSON.stringify(each)}\n`).join(''));
    if (req.method !== 'POST' || req.url !== '/') return refuse(40401, 'page not found');
    const { authorization } = req.headers;
    if (authorization !== undefined && authorization !== `Bearer ${token}`)
      return refuse(40101, 'unauthorized', 'publish/#authentication');
    if (Buffer.byteLength(body) > MAX_BODY) return refuse(41303, 'JSON body too large');
    const sent = JSON.parse(body) as Published;
    const { topic = '', message = '', priority = 3, actions = [] } = sent;
    if (!/^[-_A-Za-z0-9]{1,64}$/.test(topic)) return refuse(40009, 'invalid request: topic invalid');
    if (authorization === undefined || topic !== TOPIC) return refuse(40301, 'forbidden', 'publish/#authentication');
    if (priority < 1 || priority > 5) return refuse(40007, 'invalid priority parameter', 'publish/#message-priority');
    if (actions.length > 3)
      return refuse(40018, 'invalid request: actions invalid; only 3 actions allowed', 'publish/#action-buttons');
    if (Buffer.byteLength(message) > MAX_MESSAGE)
      return refuse(40014, 'invalid request: attachments not allowed', 'config/#attachments');
    const shown = {
      ...{ id: '0Re3jWujQ0sv', time: 1796115638, expires: 1796158838, event: 'message', ...sent },
      ...(actions.length > 0 && { actions: actions.map((each) => ({ id: 'oIm1asnCwR', ...each, clear: false })) }),
    };
    published.push(shown);
    answer(200, shown);
  });
}

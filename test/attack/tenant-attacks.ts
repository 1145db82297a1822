import { randomBytes } from 'node:crypto';
import { StreamType, streamPrefix } from '../../src/agent-protocol/messages.ts';
import { ProtocolAgent } from '../support/protocol-agent.ts';
import { type Attack, held, type Life, openTls, repeat, type Target } from './attack.ts';
import { ANSWER, bind, onRequest } from './hostile-endpoint.ts';

const COSTLY = 'costly.localhost';
const DRIPPING = 'dripping.localhost';
const LOST = 'lost.localhost';
const MANY_BINDINGS = `{"Id":"b","Proto":"https","Opts":{},"Extra":{"Bindings":[${'1,'.repeat(520_000)}1]}}`;
const SMALL_POLICIES = 30;

const EXPRESSIONS = [
  'lists.range(900).all(a, lists.range(900).all(b, [[1, 2], [3], [4, [5]]].flatten().reverse().size() > 0))',
  'lists.range(2000).map(a, lists.range(2000).slice(0, 1000)).flatten().size() > 0',
];
const COSTLY_POLICY = onRequest(
  ...EXPRESSIONS.map((expression) => ({
    expressions: [expression],
    actions: [{ type: 'add-headers', config: { headers: { x: 'y' } } }],
  })),
  ANSWER,
);
/** Rules that take long to compile: each pattern is another one. */
const LARGE_POLICY = (seed: number) =>
  onRequest(
    ...Array.from({ length: 100 }, (_, index) => ({
      expressions: [`req.url.path.matches('^/(a|b${seed}x${index}){1,50}[^/]*(c|d)+$')`],
      actions: [{ type: 'deny', config: { status_code: 403 } }],
    })),
  );

/** Sends GETs to a host of the tenant, one after another as fast as they are answered. */
async function ask(life: Life, host: string, options: { reads?: boolean } = {}): Promise<void> {
  const socket = await openTls(life.target.httpsPort, host, life);
  const get = `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;
  if (options.reads === false) socket.write(get);
  else await repeat(socket, 50, () => socket.write(get));
  await held(socket, options);
}

/** The request of one device to join, the same each time. */
const INSTALL_KEY = randomBytes(32).toString('base64url');
function enrolment({ joinSecret, httpsPort }: Target): string {
  const body = JSON.stringify({ install_key: INSTALL_KEY, secret: joinSecret, name: 'again' });
  const head = [`Host: api.localhost:${httpsPort}`, 'Content-Type: application/json', `Content-Length: ${body.length}`];
  return `POST /enrolments HTTP/1.1\r\n${head.join('\r\n')}\r\n\r\n${body}`;
}

/** One tenant with a valid authtoken, and clients that work with him. */
export const TENANT_ATTACKS: Attack[] = [
  {
    name: 'tenant: costly expressions',
    width: 1,
    async live(life) {
      const agent = await ProtocolAgent.open(life);
      await bind(agent, 'https', { Domain: COSTLY, TrafficPolicy: COSTLY_POLICY });
      await held(agent.socket);
    },
  },
  { name: 'tenant: costly expressions, by clients', width: 5, live: (life) => ask(life, COSTLY) },
  {
    name: 'tenant: frames of one byte',
    width: 1,
    async live(life) {
      const agent = await ProtocolAgent.open(life, (self, stream) => {
        self.send(stream, Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n'));
        for (let count = 0; count < 100_000; count++) self.send(stream, Buffer.alloc(1));
      });
      await bind(agent, 'https', { Domain: DRIPPING });
      await held(agent.socket);
    },
  },
  {
    name: 'tenant: frames of one byte, by clients that do not read',
    width: 5,
    live: (life) => ask(life, DRIPPING, { reads: false }),
  },
  {
    name: 'tenant: a name that is lost all the time',
    width: 1,
    async live(life) {
      const agent = await ProtocolAgent.open(life);
      await bind(agent, 'https', { Domain: LOST });
      agent.socket.destroy();
    },
  },
  { name: 'tenant: clients of a name that is lost', width: 60, live: (life) => ask(life, LOST) },
  {
    name: 'tenant: BIND with 520,000 wrong bindings',
    width: 1,
    async live(life) {
      const agent = await ProtocolAgent.open(life);
      while (!agent.socket.destroyed) await agent.call(StreamType.bind, MANY_BINDINGS);
    },
  },
  {
    name: 'tenant: all tcp ports',
    width: 1,
    async live(life) {
      const agent = await ProtocolAgent.open(life);
      for (let count = 0; count < 1100 && !agent.socket.destroyed; count++) await bind(agent, 'tcp', {});
      await held(agent.socket);
    },
  },
  {
    name: 'tenant: 30 policies of 100 rules',
    width: 1,
    async live(life) {
      const agent = await ProtocolAgent.open(life);
      for (let seed = 0; seed < SMALL_POLICIES && !agent.socket.destroyed; seed++)
        await bind(agent, 'https', { Domain: `large-${seed}.localhost`, TrafficPolicy: LARGE_POLICY(seed) });
      await held(agent.socket);
    },
  },
  {
    name: 'tenant: streams that watch no endpoint',
    width: 20,
    async live(life) {
      const agent = await ProtocolAgent.open(life);
      const ask = () => agent.call(StreamType.requests, '{"Id":"x"}');
      while (!agent.socket.destroyed) await Promise.all(Array.from({ length: 50 }, ask));
    },
  },
  {
    name: 'tenant: streams without a type',
    width: 20,
    async live(life) {
      const agent = await ProtocolAgent.open(life);
      await repeat(agent.socket, 10, () => {
        for (let count = 0; count < 50; count++)
          agent.send(agent.nextStream(), Buffer.alloc(0), { syn: true, fin: true });
      });
    },
  },
  {
    name: 'tenant: heartbeats on second links whose echoes are not read',
    width: 40,
    async live(life) {
      const second = await ProtocolAgent.openSecondLink(life);
      second.socket.pause();
      for (let count = 0; count < 60; count++) {
        const stream = second.nextStream();
        second.send(stream, streamPrefix(StreamType.heartbeat), { syn: true });
        for (let sent = 0; sent < 15; sent++) second.send(stream, Buffer.alloc(16_384));
      }
      await held(second.socket, { reads: false });
    },
  },
  {
    name: 'tenant: sessions, as many as possible',
    width: 20,
    live: async (life) => held((await ProtocolAgent.open(life)).socket),
  },
  {
    name: 'tenant: a device that enrols again and again',
    width: 4,
    async live(life) {
      const socket = await openTls(life.target.httpsPort, 'api.localhost', life);
      const requests = enrolment(life.target).repeat(20);
      await repeat(socket, 10, () => socket.write(requests));
    },
  },
];

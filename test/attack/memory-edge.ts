/**
 * An edge, and connections of agents, in a process of their own that counts what it holds and closes nobody for it. Prints its
 * ports; then, for each line of its input, what it counts and uses. Argument: the port of an upstream that answers.
 */
import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { createInterface } from 'node:readline';
import { Duplex } from 'node:stream';
import { createServer as createTlsServer } from 'node:tls';
import type { Channel } from '../../src/agent-protocol/channel.ts';
import { Connection } from '../../src/agent-protocol/connection.ts';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
import { compilePolicy } from '../../src/traffic-policy/engine.ts';
import { TestEdge } from '../support/edge.ts';
import { processResources } from '../support/process-resources.ts';
import { StreamChannel } from '../support/stream-channel.ts';

const answering = Number(process.argv[2]);
const GIB = 1024 ** 3;

/** The budgets that are no share of another one. */
const budgets = new Set<MemoryBudget>();
const { report, reserve } = MemoryBudget.prototype;
MemoryBudget.prototype.report = function (this: MemoryBudget, user, bytes) {
  if ((this as unknown as { whole: MemoryBudget | null }).whole === null) budgets.add(this);
  report.call(this, user, bytes);
};
MemoryBudget.prototype.reserve = function (this: MemoryBudget, bytes) {
  if ((this as unknown as { whole: MemoryBudget | null }).whole === null) budgets.add(this);
  reserve.call(this, bytes);
};

const edge = await TestEdge.start({
  httpLimits: { memory: 8 * GIB, headersTimeout: 600_000, progressTimeout: 600_000, idleTimeout: 600_000 },
  tlsLimits: { handshakeTimeout: 600_000, hellos: 8192, connections: 8192 },
});
const webhook = { type: 'verify-webhook', config: { provider: 'github', secret: 'x' } };
const answered = () => connect({ port: answering, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => {});
/** Answers each request with something that never ends. */
const begun =
  (first: string, piece: string | Buffer, pieces = 15, status = '200 OK') =>
  () => {
    const upstream: Duplex = new Duplex({
      read() {},
      write(_chunk, _encoding, done) {
        upstream.push(`HTTP/1.1 ${status}\r\n${first}`);
        for (let sent = 0; sent < pieces; sent += 1) setTimeout(() => upstream.push(piece), 30 * sent);
        done();
      },
    });
    return upstream;
  };
const upgraded = begun('', '', 0, '101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
const beginning = begun('', `X-Much: ${'x'.repeat(4000)}\r\n`);
const message = begun('Content-Type: text/event-stream\r\n\r\ndata: ', 'x'.repeat(4000));
const replacements = { replacements: [{ from: 'y', to: 'z' }] };
const replace = { type: 'sse-find-replace', config: replacements };
const search = (side: string) => ({ type: `${side}-body-find-replace`, config: replacements });
/** Answers in chunks of one byte, without an end. */
const crumbs = begun('Transfer-Encoding: chunked\r\n\r\n', '1\r\nx\r\n'.repeat(8000));
/** Texts made of many small ones, a tree of small lists, and short texts cut out of long ones. */
const texts = Object.entries({
  ascii: `\${req.url.query}`,
  joined: `\${${Array.from({ length: 20 }, (_, at) => `req.url.query.substring(${at * 20}, ${at * 20 + 15})`).join(' + ')}}`,
  tree: `\${json.decode('[' + req.url.query.replace('a', '[],') + '[]]')}`,
  cut: `\${req.url.query.replace('a', 'bc').substring(0, 20)}`,
}).map(([name, value]) => ({ [name]: value }));
const large = Object.fromEntries(
  Array.from({ length: 10 }, (_, at) => [`x-${at}`, `\${req.url.query.replace('a', '${at}')}`]),
);
const endpoints = [
  ['silent', () => new Duplex({ read() {}, write() {}, highWaterMark: 1 }), {}],
  ['beginning', beginning, {}],
  ['answering', answered, {}],
  ['message', message, { policy: { on_event_stream_message: [{ actions: [replace] }] } }],
  ['webhook', answered, { policy: { on_http_request: [{ actions: [webhook] }] } }],
  ['crumb', crumbs, { policy: { on_http_response: [{ actions: [search('response')] }] } }],
  [
    'variable',
    answered,
    { policy: { on_http_request: [{ actions: [{ type: 'set-vars', config: { vars: texts } }, webhook] }] } },
  ],
  [
    'header',
    () => new Duplex({ read() {}, write() {}, highWaterMark: 1 }),
    { policy: { on_http_request: [{ actions: [{ type: 'add-headers', config: { headers: large } }] }] } },
  ],
  [
    'parsed',
    () => new Duplex({ read() {}, write() {}, highWaterMark: 1 }),
    {
      policy: {
        on_http_request: [{ expressions: ["'b' in req.url.query_params"], actions: [{ type: 'deny' }] }],
      },
    },
  ],
  ['upgraded', upgraded, {}],
] as const;
/** They stand in for the streams of agents, which count what they hold. */
const upstreams = new Set<Duplex>();
for (const [name, open, options] of endpoints) {
  for (const protocol of ['http', 'https'] as const) {
    const host = `${name}${protocol === 'https' ? 's' : ''}.localhost`;
    const endpoint = await edge.serve(host, () => {}, { protocol, ...options });
    if ('policy' in options) {
      Object.assign(endpoint, { policy: compilePolicy(JSON.stringify(options.policy), protocol) });
    }
    endpoint.open = () => {
      const upstream = open();
      upstreams.add(upstream);
      return upstream.once('close', () => upstreams.delete(upstream));
    };
  }
}

const agentMemory = new MemoryBudget(8 * GIB);
const { cert, key } = await edge.ca.issue(['localhost']);
/** What the gateway does with a stream that an agent opens on its connection. */
const agents = {
  /** Clients send to the agent, which does not read. */
  unread(_channel: Channel, connection: Connection) {
    for (let opened = 0; opened < 50; opened += 1) {
      const channel = connection.channel();
      connection.open(channel);
      for (let sent = 0; sent < 4; sent += 1) channel.write(Buffer.alloc(65_536, 'x'));
    }
  },
  /** Clients do not read what the agent sends. */
  unsent: (channel: Channel) => channel.pause(),
  /** As for heartbeats. */
  echoing(channel: Channel) {
    channel.receiver = { onData: (bytes) => void channel.write(bytes), onEnd() {} };
  },
};

async function listenForAgents(accept: (channel: Channel, connection: Connection) => void): Promise<number> {
  const server = createTlsServer({ cert, key }, (socket) => {
    const user = {
      accept: (channel: Channel) => accept(channel, connection),
      ended: (reason: Error) => void socket.destroy(reason),
    };
    const connection = new Connection(socket, user);
    connection.trust(agentMemory.newShare());
    connection.start();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

print({
  httpPort: edge.httpPort,
  httpsPort: edge.httpsPort,
  agentPorts: {
    unread: await listenForAgents(agents.unread),
    unsent: await listenForAgents(agents.unsent),
    echoing: await listenForAgents(agents.echoing),
  },
});

createInterface({ input: process.stdin }).on('line', () => {
  globalThis.gc?.();
  let counted = StreamChannel.kept;
  for (const { readableLength, writableLength } of upstreams) counted += readableLength + writableLength;
  for (const { held, reserved } of budgets) counted += held + reserved;
  print({
    counted,
    used: processResources(process.pid).rssMib * 2 ** 20,
  });
});

function print(facts: object): void {
  process.stdout.write(`${JSON.stringify(facts)}\n`);
}

/**
 * An edge in its own process that counts what it holds and closes nobody for it. Prints its ports; then, for each line of its
 * input, what it counts and uses. Argument: the port of an upstream that answers.
 */
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { Duplex } from 'node:stream';
import { MemoryBudget } from '../../src/lib/memory-budget.ts';
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
/** Answers each request with a head that never ends. */
const beginning = () => {
  const upstream: Duplex = new Duplex({
    read() {},
    write(_chunk, _encoding, done) {
      upstream.push('HTTP/1.1 200 OK\r\n');
      for (let sent = 0; sent < 15; sent += 1)
        setTimeout(() => upstream.push(`X-Much: ${'x'.repeat(4000)}\r\n`), 30 * sent);
      done();
    },
  });
  return upstream;
};
const endpoints = [
  ['silent', () => new Duplex({ read() {}, write() {}, highWaterMark: 1 }), {}],
  ['beginning', beginning, {}],
  ['answering', answered, {}],
  ['webhook', answered, { policy: { on_http_request: [{ actions: [webhook] }] } }],
] as const;
/** They stand in for the streams of agents, which count what they hold. */
const upstreams = new Set<Duplex>();
for (const [name, open, options] of endpoints) {
  for (const protocol of ['http', 'https'] as const) {
    const host = `${name}${protocol === 'https' ? 's' : ''}.localhost`;
    const endpoint = await edge.serve(host, () => {}, { protocol, ...options });
    endpoint.open = () => {
      const upstream = open();
      upstreams.add(upstream);
      return upstream.once('close', () => upstreams.delete(upstream));
    };
  }
}
print({ httpPort: edge.httpPort, httpsPort: edge.httpsPort });

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

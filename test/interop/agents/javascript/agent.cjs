// An agent with the JavaScript SDK, where SDK is its folder. Binds what a line of JSON on stdin asks for, prints what it
// got, and runs until stdin ends.
const { createInterface } = require('node:readline');
const { SessionBuilder } = require(String(process.env.SDK));

/** @param {any} plan */
async function carryOut(plan) {
  const session = await new SessionBuilder()
    .authtoken(plan.authtoken)
    .serverAddr(plan.server)
    .caCert(Buffer.from(plan.ca))
    .metadata('of the session')
    .connect();
  const urls = [];
  for (const wanted of plan.endpoints) {
    const isTls = wanted.protocol === 'tls';
    const builder = isTls ? session.tlsEndpoint() : session.httpEndpoint();
    builder.domain(wanted.domain).metadata(wanted.metadata ?? '');
    if (wanted.policy !== undefined) builder.policy(wanted.policy);
    if (wanted.edge_termination) builder.termination(Buffer.alloc(0), Buffer.alloc(0));
    const listener = await builder.listen();
    listener.forward(isTls ? plan.upstream : `http://${plan.upstream}`);
    urls.push(listener.url());
  }
  process.stdout.write(`${JSON.stringify({ urls })}\n`);
}

createInterface({ input: process.stdin })
  .on('line', (line) => void carryOut(JSON.parse(line)))
  .on('close', () => process.exit());

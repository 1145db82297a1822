/**
 * SDK endpoints without the agent: of both schemes without a policy, and of the http scheme with policies. Also measures
 * how long `listen()` takes.
 * Arguments: gateway address, CA file, authtoken, upstream port.
 */
import { readFileSync } from 'node:fs';
import { SessionBuilder } from '@ngrok/ngrok';
import { median } from './support/figures.ts';
import { DEFAULT_POLICY, TEN_RULES } from './support/policies.ts';

const [address = '', caFile = '', authtoken = '', port = ''] = process.argv.slice(2);
const session = await new SessionBuilder()
  .serverAddr(address)
  .caCert(readFileSync(caFile))
  .authtoken(authtoken)
  .connect();
const times: number[] = [];
for (let i = 0; i < 200; i++) {
  const before = performance.now();
  await session.httpEndpoint().domain(`listen-${i}.localhost`).listen(false);
  times.push(performance.now() - before);
}
for (const [scheme, name, policy] of [
  ['HTTP', 'plain', '{}'],
  ['HTTPS', 'plain', '{}'],
  ['HTTP', 'default', DEFAULT_POLICY],
  ['HTTP', 'rules', TEN_RULES],
] as const) {
  const builder = session.httpEndpoint().scheme(scheme).domain(`${name}.localhost`);
  const endpoint = await builder.trafficPolicy(policy).listen(false);
  void endpoint.forward(`http://127.0.0.1:${port}`);
}
console.log(JSON.stringify({ listenMedian: median(times) }));

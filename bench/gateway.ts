/**
 * A gateway in its own process; SIGUSR2 prints what is online, its memory, and the longest delay of its event
 * loop since the last time. Arguments: its data folder, its address unless it is loopback's,
 * and further options, as JSON.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { startGateway } from '../src/gateway/gateway.ts';
import { issueCredential } from '../src/gateway/store/tokens.ts';
import { createLog } from '../src/lib/log/log.ts';

const gateway = await startGateway({
  dataDir: process.argv[2] ?? '',
  domain: 'localhost',
  host: process.argv[3] ?? '127.0.0.1',
  httpPort: 0,
  httpsPort: 0,
  sessionPort: 0,
  log: await createLog('warn', 'json'),
  ...JSON.parse(process.argv[4] ?? '{}'),
});
const { sessionAddress, caFile, httpPort, httpsPort, store } = gateway;
// Not the one of an embedded agent, which would replace those of other gateways.
const { token: authtoken } = await store.database.write(() => issueCredential(store, { acl: [] }));
console.log(JSON.stringify({ sessionAddress, authtoken, caFile, httpPort, httpsPort }));
const delays = monitorEventLoopDelay({ resolution: 5 });
delays.enable();
process.on('SIGUSR2', () => {
  const { sessions, endpoints } = gateway;
  const counts = { sessions: [...sessions.sessions].length, endpoints: endpoints.list().length };
  const maxDelayMs = delays.max / 1e6;
  delays.reset();
  console.log(JSON.stringify({ ...counts, mib: Math.round(process.memoryUsage.rss() / 1_048_576), maxDelayMs }));
});
process.once('SIGTERM', () => void gateway.close().then(() => process.exit()));

/**
 * A gateway in its own process; SIGUSR2 prints what is online. Arguments: its data folder, its address unless it is loopback's,
 * and further options, as JSON.
 */
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
process.on('SIGUSR2', () => {
  const { sessions, endpoints } = gateway;
  const counts = { sessions: [...sessions.sessions].length, endpoints: endpoints.list().length };
  console.log(JSON.stringify({ ...counts, mib: Math.round(process.memoryUsage.rss() / 1_048_576) }));
});
process.once('SIGTERM', () => void gateway.close().then(() => process.exit()));

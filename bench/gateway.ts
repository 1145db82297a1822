/** A gateway in its own process; SIGUSR2 prints what is online. Arguments: its data folder, and its address unless it is loopback's. */
import { startGateway } from '../src/gateway/gateway.ts';
import { createLog } from '../src/lib/log/log.ts';

const gateway = await startGateway({
  dataDir: process.argv[2] ?? '',
  domain: 'localhost',
  host: process.argv[3] ?? '127.0.0.1',
  httpPort: 0,
  httpsPort: 0,
  sessionPort: 0,
  log: await createLog('warn', 'json'),
});
const { sessionAddress, caFile, httpPort, httpsPort } = gateway;
const authtoken = await gateway.issueAuthtoken();
console.log(JSON.stringify({ sessionAddress, authtoken, caFile, httpPort, httpsPort }));
process.on('SIGUSR2', () => {
  const { sessions, endpoints } = gateway;
  console.log(JSON.stringify({ sessions: [...sessions.sessions].length, endpoints: endpoints.list().length }));
});
process.once('SIGTERM', () => void gateway.close().then(() => process.exit()));

/**
 * `npm run bench [-- traffic|policy|inspection|sessions|storm|growth|device|key-exchange|management|pages|history|cluster|catch-up|data|far|soak|wan|wan-100…]`: prints the project's figures. Compare
 * only ratios within one run.
 */
import { cpus } from 'node:os';
import { benchCatchUp } from './catch-up.ts';
import { benchCluster } from './cluster.ts';
import { benchData } from './data.ts';
import { benchDevice } from './device.ts';
import { benchFar } from './far.ts';
import { benchGrowth } from './growth.ts';
import { benchHistory } from './history.ts';
import { benchInspection } from './inspection.ts';
import { benchKeyExchange } from './key-exchange.ts';
import { benchManagement } from './management.ts';
import { benchPages } from './pages.ts';
import { benchPolicy } from './policy.ts';
import { benchSessions } from './sessions.ts';
import { benchSoak } from './soak.ts';
import { benchStorm } from './storm.ts';
import { benchTraffic } from './traffic.ts';
import { benchLossy, benchWan, LOSSY_PROFILES, WAN_PROFILES } from './wan.ts';

const wan = Object.entries(WAN_PROFILES).map(([name, link]) => [name, () => benchWan(link)] as const);
const lossy = Object.entries(LOSSY_PROFILES).map(([name, link]) => [name, () => benchLossy(link)] as const);

const BENCHES: Record<string, () => Promise<void>> = {
  traffic: benchTraffic,
  policy: benchPolicy,
  inspection: benchInspection,
  device: benchDevice,
  'key-exchange': benchKeyExchange,
  management: benchManagement,
  pages: benchPages,
  history: benchHistory,
  cluster: benchCluster,
  'catch-up': benchCatchUp,
  data: benchData,
  far: benchFar,
  sessions: benchSessions,
  growth: benchGrowth,
  storm: benchStorm,
  soak: benchSoak,
  wan: async () => {
    for (const [, bench] of wan) await bench();
  },
  ...Object.fromEntries(wan),
  'wan-lossy': async () => {
    for (const [, bench] of lossy) await bench();
  },
  ...Object.fromEntries(lossy),
};
/** Take minutes or root, and only run on request. */
const LONG = [
  'history',
  'cluster',
  'catch-up',
  'data',
  'far',
  'growth',
  'storm',
  'soak',
  'wan',
  ...Object.keys(WAN_PROFILES),
  'wan-lossy',
  ...Object.keys(LOSSY_PROFILES),
];

const wanted = process.argv.slice(2);
for (const name of wanted) {
  if (!Object.hasOwn(BENCHES, name))
    throw new Error(`unknown benchmark ${name}; choose one of: ${Object.keys(BENCHES).join(', ')}`);
}
console.log(`Node ${process.version}, ${cpus().length} × ${cpus()[0]?.model ?? 'unknown processor'}`);
for (const name of wanted.length > 0 ? wanted : Object.keys(BENCHES).filter((name) => !LONG.includes(name)))
  await BENCHES[name]?.();
process.exit();

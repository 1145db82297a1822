/** `npm run bench [-- traffic|device|management|soak]`: prints the project's figures. Compare only ratios within one run. */
import { cpus } from 'node:os';
import { benchDevice } from './device.ts';
import { benchManagement } from './management.ts';
import { benchSoak } from './soak.ts';
import { benchTraffic } from './traffic.ts';

const BENCHES: Record<string, () => Promise<void>> = {
  traffic: benchTraffic,
  device: benchDevice,
  management: benchManagement,
  soak: benchSoak,
};
/** Takes minutes, and only runs on request. */
const LONG = ['soak'];

const wanted = process.argv.slice(2);
for (const name of wanted) {
  if (!BENCHES[name]) throw new Error(`unknown benchmark ${name}; choose one of: ${Object.keys(BENCHES).join(', ')}`);
}
console.log(`Node ${process.version}, ${cpus().length} × ${cpus()[0]?.model ?? 'unknown processor'}`);
for (const name of wanted.length > 0 ? wanted : Object.keys(BENCHES).filter((name) => !LONG.includes(name)))
  await BENCHES[name]?.();
process.exit();

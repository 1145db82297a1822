// JavaScript, as scripts/build.js.
import { buildIfStale, run } from './build.js';

// Builds the management client's own package, below `build/packages`. `npm pack` and `npm publish` work there.
buildIfStale();
run('rolldown', ['-c', 'scripts/packages/rolldown.config.ts']);

// JavaScript, as scripts/build.js.
import { buildIfStale, run } from './build.js';

// Builds the packages to be published beside device-agent below `build/packages`: the management client, and the agent to
// embed. `npm pack` and `npm publish` work in each folder.
buildIfStale();
run('rolldown', ['-c', 'scripts/packages/rolldown.config.ts']);

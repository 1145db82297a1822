import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import { programMissing } from '../support/requirements.ts';
import { runSteps } from './api-steps.ts';
import type { Client } from './client.ts';
import { createVenv, inVenv } from './venv.ts';

const VERSION = '0.19.0';
const PROGRAM = 'steps.py';

export const pythonApi: Client = {
  title: `Python API client ngrok-api ${VERSION}`,
  what: 'every resource that the gateway has: create, get, list, update, delete',
  needs: '`python3`, pypi.org',
  missing: () => programMissing('python3', '--version'),
  async fetch(sources) {
    await createVenv(sources, [`ngrok-api==${VERSION}`]);
    copyFileSync('test/interop/programs/python-api.py', join(sources, PROGRAM));
  },
  run: (lab, sources) => runSteps([inVenv(sources, 'python'), PROGRAM], lab, sources),
  expected: {},
};

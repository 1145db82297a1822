import { afterAll } from 'vitest';
import { endLeftProcesses } from './agent-process.ts';

afterAll(endLeftProcesses);

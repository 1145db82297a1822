import { spawnSync } from 'node:child_process';
import { type Missing, programMissing } from './requirements.ts';

/** Why processes cannot be given other clocks here; null: they can. */
export const NO_FAKETIME: Missing = programMissing('faketime', '--version');

const LIBRARY = spawnSync('faketime', ['-f', '+0', 'printenv', 'LD_PRELOAD']).stdout?.toString().trim() ?? '';
/** Timers stay right. */
const LOADED = { LD_PRELOAD: LIBRARY, FAKETIME_DONT_FAKE_MONOTONIC: '1' };

/** The environment of a process whose clock is off, such as `-400d`, or set to a time. */
export const clockAt = (offset: string): Record<string, string> => ({ ...LOADED, FAKETIME: offset });

/** The same for one that reads the offset from a file, when it starts and every ten seconds. */
export const clockOf = (file: string): Record<string, string> => ({ ...LOADED, FAKETIME_TIMESTAMP_FILE: file });

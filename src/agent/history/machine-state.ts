import { readFile, statfs } from 'node:fs/promises';

/** What a device says of itself; null: it does not, or not on this system. */
export interface MachineState {
  /** Degrees Celsius of its processor. */
  readonly temperature: number | null;
  /** Bytes. */
  readonly freeMemory: number | null;
  /** Bytes on the disk of the data folder. */
  readonly freeDisk: number | null;
  /** Signal of its wireless network, in dBm. */
  readonly signal: number | null;
}

const TEMPERATURE = '/sys/class/thermal/thermal_zone0/temp';
const MEMORY = '/proc/meminfo';
const WIRELESS = '/proc/net/wireless';

/** @param folder the data folder */
export async function machineState(folder: string): Promise<MachineState> {
  const [temperature, memory, wireless, disk] = await Promise.all([
    read(TEMPERATURE, /^(-?\d+)/),
    read(MEMORY, /^MemAvailable:\s+(\d+) kB/m),
    // Below two lines of titles: interface, status, link quality, signal level.
    read(WIRELESS, /^\s*\w+: \S+\s+\S+\s+(-\d+)/m),
    statfs(folder).catch(() => null),
  ]);
  return {
    temperature: temperature === null ? null : temperature / 1000,
    freeMemory: memory === null ? null : memory * 1024,
    freeDisk: disk === null ? null : disk.bavail * disk.bsize,
    signal: wireless,
  };
}

async function read(path: string, pattern: RegExp): Promise<number | null> {
  // Not every device has it.
  const found = pattern.exec(await readFile(path, 'utf8').catch(() => ''))?.[1];
  return found === undefined ? null : Number(found);
}

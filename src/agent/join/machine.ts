import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** Serial numbers that no copy of a disk or card carries to another machine. */
const SOURCES = ['/sys/firmware/devicetree/base/serial-number', '/sys/class/dmi/id/product_uuid'];

/**
 * A hash that tells this machine from others, also after its card was copied.
 *
 * @returns null when the machine has no serial number that this user can read
 */
export function machineId(sources: readonly string[] = SOURCES): string | null {
  for (const file of sources) {
    const serial = readSerial(file);
    if (serial !== null) return createHash('sha256').update(serial).digest('hex').slice(0, 32);
  }
  return null;
}

function readSerial(file: string): string | null {
  try {
    const serial = readFileSync(file, 'utf8').replaceAll('\0', '').trim();
    // Virtual machines and cheap boards have zeros.
    return /[1-9a-z]/i.test(serial) ? serial : null;
  } catch {
    // Not this kind of machine, or only root may read it.
    return null;
  }
}

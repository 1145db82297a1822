const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** A number of bytes in the unit that fits: `1.2 KiB`. */
export function byteSize(bytes: number): string {
  let unit = 0;
  let value = bytes;
  while (value >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

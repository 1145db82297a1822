/** Of the ustar format, POSIX.1-2001: https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html#tag_20_92_13_06. */
const BLOCK_BYTES = 512;
const NAME_BYTES = 100;
const CHECKSUM_AT = 148;
const CHECKSUM_BYTES = 8;

/** The header of a regular file of mode 0600. @param name ASCII, at most 100 characters */
export function tarHeader(name: string, size: number, modified: Date): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, '0')}\0`;
  header.write(name, 0, NAME_BYTES, 'latin1');
  header.write(octal(0o600, 7) + octal(0, 7) + octal(0, 7) + octal(size, 11), NAME_BYTES, 'latin1');
  header.write(octal(Math.floor(modified.getTime() / 1000), 11), 136, 'latin1');
  header.write(' '.repeat(CHECKSUM_BYTES), CHECKSUM_AT, 'latin1');
  header.write('0', 156, 'latin1');
  header.write('ustar\x0000', 257, 'latin1');
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octal(sum, 6)} `, CHECKSUM_AT, 'latin1');
  return header;
}

/** What follows the bytes of a file, up to the next header. */
export function tarPadding(size: number): Buffer {
  return Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES);
}

/** What follows the last file. */
export const TAR_END: Buffer = Buffer.alloc(2 * BLOCK_BYTES);

/** The regular files of an archive that was made with these functions. @throws when it is another kind of file, or cut off */
export function readTar(archive: Buffer): Map<string, Buffer> {
  const files = new Map<string, Buffer>();
  for (let at = 0; ; ) {
    const header = archive.subarray(at, at + BLOCK_BYTES);
    if (header.length < BLOCK_BYTES) throw new Error('it is cut off');
    if (header.every((byte) => byte === 0)) return files;
    if (header.toString('latin1', 257, 262) !== 'ustar') throw new Error('it is no archive');
    const text = (from: number, to: number) => header.toString('latin1', from, to).replace(/\0.*$/s, '');
    const size = Number.parseInt(text(124, 136), 8);
    const start = at + BLOCK_BYTES;
    const content = archive.subarray(start, start + size);
    if (!(content.length === size)) throw new Error('it is cut off');
    files.set(text(0, NAME_BYTES), content);
    at = start + size + tarPadding(size).length;
  }
}

/** A TLS handshake message in records of that many bytes. */
export function inRecords(hello: Buffer, size: number): Buffer {
  const message = hello.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    const part = message.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 0xff]), part);
  }
  return Buffer.concat(records);
}

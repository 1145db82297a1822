type Value = string | number | boolean | Value[] | { [name: string]: Value };

const TYPES = { map: 7, text: 2, double: 3, uint32: 6, array: 11, bool: 14 };
const SEPARATOR = Buffer.alloc(16);
const MARKER = Buffer.from('\xab\xcd\xefMaxMind.com', 'latin1');
const RECORD_BITS = 24;

interface Node {
  readonly index: number;
  /** Another node, where a record is among the data, or nothing. */
  readonly branches: [Node | number | null, Node | number | null];
}

/** A database in MaxMind's format of version 2, which has a record for each network of IPv4, such as `203.0.113.0/24`. */
export function mmdbFile(records: Readonly<Record<string, Value>>): Buffer {
  const root: Node = { index: 0, branches: [null, null] };
  const nodes = [root];
  const data: Buffer[] = [];
  let size = 0;
  for (const [network, record] of Object.entries(records)) {
    const [address = '', length = '32'] = network.split('/');
    const bits = address.split('.').map((part) => Number(part).toString(2).padStart(8, '0'));
    const path = [...bits.join('').slice(0, Number(length))].map((digit) => (digit === '1' ? 1 : 0));
    const last = path.pop() ?? 0;
    let node = root;
    for (const bit of path) {
      const known = node.branches[bit];
      const next: Node = typeof known === 'object' && known ? known : { index: nodes.length, branches: [null, null] };
      if (next !== known) nodes.push(next);
      node.branches[bit] = next;
      node = next;
    }
    node.branches[last] = size;
    const encoded = encode(record);
    data.push(encoded);
    size += encoded.length;
  }
  const pointer = (to: Node | number | null) => {
    if (to === null) return nodes.length;
    return typeof to === 'number' ? nodes.length + SEPARATOR.length + to : to.index;
  };
  const tree = nodes.flatMap(({ branches }) => branches.map((to) => uint(pointer(to), RECORD_BITS / 8)));
  const metadata = encode({
    ...{ node_count: nodes.length, record_size: RECORD_BITS, ip_version: 4, database_type: 'Test', languages: ['en'] },
    ...{ binary_format_major_version: 2, binary_format_minor_version: 0, build_epoch: 0, description: { en: 'test' } },
  });
  return Buffer.concat([...tree, SEPARATOR, ...data, MARKER, metadata]);
}

function encode(value: Value): Buffer {
  if (typeof value === 'string')
    return Buffer.concat([control(TYPES.text, Buffer.byteLength(value)), Buffer.from(value)]);
  if (typeof value === 'boolean') return control(TYPES.bool, Number(value));
  if (typeof value === 'number') {
    if (Number.isInteger(value) && value >= 0) return Buffer.concat([control(TYPES.uint32, 4), uint(value, 4)]);
    const double = Buffer.alloc(8);
    double.writeDoubleBE(value);
    return Buffer.concat([control(TYPES.double, 8), double]);
  }
  if (Array.isArray(value)) return Buffer.concat([control(TYPES.array, value.length), ...value.map(encode)]);
  const members = Object.entries(value);
  return Buffer.concat([
    control(TYPES.map, members.length),
    ...members.flatMap(([name, member]) => [encode(name), encode(member)]),
  ]);
}

/** Types above 7 are in a byte of their own. */
function control(type: number, size: number): Buffer {
  if (size > 28) return Buffer.from([(type << 5) | 29, size - 29]);
  return Buffer.from(type > 7 ? [size, type - 7] : [(type << 5) | size]);
}

function uint(value: number, bytes: number): Buffer {
  const buffer = Buffer.alloc(bytes);
  buffer.writeUIntBE(value, 0, bytes);
  return buffer;
}

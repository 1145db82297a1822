import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAst } from 'rolldown/parseAst';

/** A call of a log's method in the source. */
export interface LogCall {
  /** `file:line`. */
  place: string;
  level: string;
  messages: string[];
  fields: string[];
  /** What keeps the call from being read, such as a message that is no constant. */
  problems: string[];
}

interface Node {
  type: string;
  start: number;
  [member: string]: unknown;
}

const LEVELS = new Set(['fatal', 'error', 'warn', 'info', 'debug', 'trace']);

/** Finds all calls such as `this.#log.warn({ url }, 'tunnel failed')` in a folder's sources. */
export function logCalls(folder: string): LogCall[] {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts'));
  return files.sort().flatMap((name) => callsIn(join(folder, name)));
}

function callsIn(file: string): LogCall[] {
  const source = readFileSync(file, 'utf8');
  if (!/\blog\??\.(?:fatal|error|warn|info|debug|trace)\(/.test(source)) return [];
  const nodes = nodesIn(parseAst(source, { lang: 'ts' }));
  const objects = namedObjects(nodes);
  return nodes.flatMap((node) => {
    const level = levelOf(node);
    const place = `${file}:${source.slice(0, node.start).split('\n').length}`;
    return level === null ? [] : [readCall(node, { level, place, objects })];
  });
}

/** Object literals by the name of the constant that holds them. */
type Objects = ReadonlyMap<unknown, Node>;

function namedObjects(nodes: readonly Node[]): Objects {
  const declarators = nodes.filter(({ type }) => type === 'VariableDeclarator');
  const named = declarators.map(({ id, init }) => [(id as Node).name, init as Node | null] as const);
  return new Map(named.filter((entry): entry is [unknown, Node] => entry[1]?.type === 'ObjectExpression'));
}

function readCall(
  node: Node,
  { level, place, objects }: Pick<LogCall, 'level' | 'place'> & { objects: Objects },
): LogCall {
  const call: LogCall = { place, level, messages: [], fields: [], problems: [] };
  const [first, second] = node.arguments as Node[];
  readMessage(second ?? first, call);
  if (first !== undefined && second !== undefined) readFields(first, call, objects);
  return call;
}

/** The level of a call like `….log.warn(…)`; null for any other node. */
function levelOf(node: Node): string | null {
  if (node.type !== 'CallExpression') return null;
  const { object, property } = node.callee as { object?: Node; property?: Node };
  const level = property?.name;
  if (typeof level !== 'string' || !LEVELS.has(level) || object === undefined) return null;
  const owner = object.type === 'MemberExpression' ? (object.property as Node) : object;
  return owner.name === 'log' ? level : null;
}

function readMessage(node: Node | undefined, call: LogCall): void {
  if (node?.type === 'Literal' && typeof node.value === 'string') call.messages.push(node.value);
  else if (node?.type === 'ConditionalExpression') {
    readMessage(node.consequent as Node, call);
    readMessage(node.alternate as Node, call);
  } else call.problems.push('the message is not a constant');
}

function readFields(node: Node, call: LogCall, objects: Objects): void {
  const read = (part: unknown) => readFields(part as Node, call, objects);
  const object = node.type === 'Identifier' ? objects.get(node.name) : node;
  if (object?.type === 'ObjectExpression') {
    for (const property of object.properties as Node[]) {
      const { name } = (property.key ?? {}) as { name?: unknown };
      if (property.type === 'SpreadElement') read(property.argument);
      else if (typeof name === 'string' && property.computed !== true) call.fields.push(name);
      else call.problems.push('the name of a field is not a constant');
    }
  } else if (node.type === 'ConditionalExpression') {
    read(node.consequent);
    read(node.alternate);
  } else if (node.type === 'LogicalExpression') read(node.right);
  else if (node.type === 'ParenthesizedExpression') read(node.expression);
  else call.problems.push('the fields are not an object literal');
}

function nodesIn(value: unknown): Node[] {
  if (Array.isArray(value)) return value.flatMap(nodesIn);
  if (typeof value !== 'object' || value === null) return [];
  const within = Object.values(value).flatMap(nodesIn);
  return 'type' in value ? [value as Node, ...within] : within;
}

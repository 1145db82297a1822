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
  if (!/\blog\.(?:fatal|error|warn|info|debug|trace)\(/.test(source)) return [];
  return nodesIn(parseAst(source, { lang: 'ts' })).flatMap((node) => {
    const level = levelOf(node);
    return level === null ? [] : [readCall(node, level, `${file}:${source.slice(0, node.start).split('\n').length}`)];
  });
}

function readCall(node: Node, level: string, place: string): LogCall {
  const call: LogCall = { place, level, messages: [], fields: [], problems: [] };
  const [first, second] = node.arguments as Node[];
  readMessage(second ?? first, call);
  if (first !== undefined && second !== undefined) readFields(first, call);
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

function readFields(node: Node, call: LogCall): void {
  if (node.type === 'ObjectExpression') {
    for (const property of node.properties as Node[]) readField(property, call);
  } else if (node.type === 'ConditionalExpression') {
    readFields(node.consequent as Node, call);
    readFields(node.alternate as Node, call);
  } else if (node.type === 'LogicalExpression') readFields(node.right as Node, call);
  else if (node.type === 'ParenthesizedExpression') readFields(node.expression as Node, call);
  else call.problems.push('the fields are not an object literal');
}

function readField(property: Node, call: LogCall): void {
  const { name } = (property.key ?? {}) as { name?: unknown };
  if (property.type === 'SpreadElement') readFields(property.argument as Node, call);
  else if (typeof name === 'string' && property.computed !== true) call.fields.push(name);
  else call.problems.push('the name of a field is not a constant');
}

function nodesIn(value: unknown): Node[] {
  if (Array.isArray(value)) return value.flatMap(nodesIn);
  if (typeof value !== 'object' || value === null) return [];
  const within = Object.values(value).flatMap(nodesIn);
  return 'type' in value ? [value as Node, ...within] : within;
}

/** Texts that YAML reads as they stand, and as texts. */
const PLAIN =
  /^(?![-?:](?:\s|$)|[\s#&*!|>'"%@`{}[\],~=]|[+-]?[.\d]|(?:true|false|null|yes|no|on|off)$)(?:(?!: | #|:$|\s$).)+$/isu;
const CONTROL = /[\p{Cc}\p{Zl}\p{Zp}]/u;
const INDENT = '  ';

/**
 * A value of JSON, or of YAML's core schema, as lines of YAML: one scalar a line, so that lines that differ show what differs.
 *
 * @param value no value refers to itself
 */
export function linesOf(value: unknown): string[] {
  const lines: string[] = [];
  write(lines, value, '', '');
  return lines;
}

/** @param first what the first line begins with, if it is not a line of its own; @param indent what all others begin with */
function write(lines: string[], value: unknown, first: string, indent: string): void {
  if (!isContainer(value)) {
    writeScalar(lines, value, first, indent);
    return;
  }
  let start = first;
  const begin = () => {
    const before = start;
    start = indent;
    return before;
  };
  if (Array.isArray(value)) {
    for (const item of value as unknown[]) write(lines, item, `${begin()}- `, indent + INDENT);
    return;
  }
  for (const [name, member] of Object.entries(value)) {
    const key = `${begin()}${scalarText(name)}:`;
    if (!isContainer(member)) {
      writeScalar(lines, member, `${key} `, indent + INDENT);
      continue;
    }
    lines.push(key);
    // As people write it, a list is not indented more than its name.
    const inner = Array.isArray(member) ? indent : indent + INDENT;
    write(lines, member, inner, inner);
  }
}

/** A text of several lines becomes as many, if they show all of it. */
function writeScalar(lines: string[], value: unknown, first: string, indent: string): void {
  const parts = typeof value === 'string' && value.includes('\n') ? value.split('\n') : [];
  const isEnded = parts.at(-1) === '';
  const isShown = parts.every((part) => !CONTROL.test(part)) && !/^\s|^$/.test(parts[0] ?? '');
  if (!isShown || (isEnded && parts.at(-2) === '')) {
    lines.push(first + scalarText(value));
    return;
  }
  lines.push(`${first}${isEnded ? '|' : '|-'}`);
  for (const part of isEnded ? parts.slice(0, -1) : parts) lines.push(part === '' ? '' : indent + part);
}

function scalarText(value: unknown): string {
  if (typeof value === 'string' && PLAIN.test(value) && !CONTROL.test(value)) return value;
  return JSON.stringify(value) ?? 'null';
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null && Object.keys(value).length > 0;
}

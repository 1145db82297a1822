import { dirname, join } from 'node:path';
import { z } from 'zod';
import { OWN_FORMS } from '../src/management/resources/resource.ts';

interface JsonSchema {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  properties?: Record<string, JsonSchema>;
  additionalProperties?: JsonSchema | false;
  required?: string[];
  description?: string;
  default?: unknown;
}

type Direction = 'input' | 'output';

/** Schemas by the names of their types. A second name of a schema is an alias of the first. */
export class NamedSchemas {
  readonly #names = new Map<z.ZodType, string>();
  readonly #aliases = new Map<string, string>();
  readonly #json: Readonly<Record<Direction, Record<string, JsonSchema>>>;
  /** How each name is used; grows while types are written. */
  readonly used = new Map<string, Direction>();

  constructor(exported: readonly (readonly [name: string, value: unknown])[]) {
    const registry = z.registry<{ id: string }>();
    for (const [name, value] of exported) {
      // A part of schemas, such as `ownerId`, has no type of its own.
      if (!(value instanceof z.ZodType) || !/^[A-Z]/.test(name)) continue;
      const schema = OWN_FORMS.get(value) ?? value;
      const first = this.#names.get(schema);
      if (first !== undefined) this.#aliases.set(name, first);
      else registry.add(schema, { id: name });
      this.#names.set(schema, first ?? name);
    }
    const json = (io: Direction) =>
      z.toJSONSchema(registry, { io, uri: (id) => id, unrepresentable: 'any' }).schemas as Record<string, JsonSchema>;
    this.#json = { input: json('input'), output: json('output') };
  }

  /** The name of a schema, which its types will have. */
  use(schema: z.ZodType, direction: Direction): string {
    const name = this.#names.get(OWN_FORMS.get(schema) ?? schema);
    if (name === undefined) throw new Error(`a schema of an operation is not exported: ${JSON.stringify(schema.def)}`);
    this.#mark(name, direction);
    return name;
  }

  /** The type of a member of a response. */
  memberType(schema: z.ZodType, member: string): string {
    const name = this.#names.get(schema) ?? '';
    return this.#typeOf(this.#json.output[name]?.properties?.[member] ?? {}, 'output', '');
  }

  /** An interface for each name in use, and for all that they name. */
  interfaces(): string {
    let text = '';
    // Writing one may mark others, which then come later.
    for (const [name, direction] of this.used) {
      const schema = this.#json[direction][name] ?? {};
      text += `\n${comment(schema.description ?? '', '')}export interface ${name} ${this.#block(schema, direction, '')}\n`;
    }
    for (const [alias, name] of this.#aliases) {
      if (this.used.has(name)) text += `\nexport interface ${alias} extends ${name} {}\n`;
    }
    return text;
  }

  #mark(name: string, direction: Direction): void {
    if ((this.used.get(name) ?? direction) !== direction) throw new Error(`${name} is both sent and answered`);
    this.used.set(name, direction);
  }

  #block({ properties = {}, required = [] }: JsonSchema, direction: Direction, indent: string): string {
    const inner = `${indent}  `;
    const members = Object.entries(properties).map(([name, member]) => {
      const isOptional = !required.includes(name);
      const preset = direction === 'input' && member.default !== undefined && member.default !== null;
      const text = `${member.description ?? ''}${preset ? ` Default: \`${JSON.stringify(member.default)}\`.` : ''}`;
      const type = this.#typeOf(member, direction, inner);
      return `${comment(text.trim(), inner)}${inner}${name}${isOptional ? '?' : ''}: ${type}${isOptional ? ' | undefined' : ''};\n`;
    });
    return members.length === 0 ? '{}' : `{\n${members.join('')}${indent}}`;
  }

  #typeOf(schema: JsonSchema, direction: Direction, indent: string): string {
    const { $ref, const: constant, enum: values, items, properties, additionalProperties } = schema;
    const alternatives = schema.anyOf ?? schema.oneOf;
    const inner = (each: JsonSchema) => this.#typeOf(each, direction, indent);
    if ($ref !== undefined) {
      this.#mark($ref, direction);
      return $ref;
    }
    if (alternatives) return union(alternatives.map(inner));
    if (constant !== undefined) return JSON.stringify(constant);
    if (values) return union(values.map((value) => JSON.stringify(value)));
    if (items) {
      const item = inner(items);
      return item.includes(' | ') ? `(${item})[]` : `${item}[]`;
    }
    if (properties) return this.#block(schema, direction, indent);
    if (additionalProperties) return `Record<string, ${inner(additionalProperties)}>`;
    return union([schema.type ?? 'unknown'].flat().map((type) => (type === 'integer' ? 'number' : type)));
  }
}

/** `unknown` takes in all others. */
function union(types: readonly string[]): string {
  return types.includes('unknown') ? 'unknown' : [...new Set(types)].join(' | ');
}

export function comment(text: string, indent: string): string {
  return text === '' ? '' : `${indent}/** ${text.replaceAll('*/', '*\\/')} */\n`;
}

/**
 * The files of types that the entry reaches, by their paths.
 *
 * @param read returns the text of a file
 */
export function reachableFiles(entry: string, read: (path: string) => string): Map<string, string> {
  const files = new Map<string, string>();
  const visit = (path: string): void => {
    if (files.has(path)) return;
    // All resources are in one file.
    const text = read(path).replace(/'\.\/resources\/[\w-]+\.ts'/g, "'./resources.ts'");
    files.set(path, text);
    for (const [, name = ''] of text.matchAll(/ from ["'](\.[^"']+)["'];$/gm))
      visit(join(dirname(path), name.replace(/\.ts$/, '.d.ts')));
  };
  visit(entry);
  return files;
}

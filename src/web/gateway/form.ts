import { ApiProblem } from '../ui/api.ts';
import type { NumberBounds } from '../ui/field.tsx';

/** An item that a field refers to. */
export interface Option {
  value: string;
  label: string;
  hint?: string;
}

/** A field of a form. */
export interface FormField {
  /** The key of its value. */
  name: string;
  /** The member of the request that it becomes; left out: the one with its name. */
  member?: string;
  label: string;
  hint?: string;
  /**
   * `lines`: one value on each line; `code`: PEM or a policy; `choice`: a few fixed options; `one-of` and `some-of`: other
   * items, whose ids are the value, one on each line.
   */
  kind: 'text' | 'number' | 'lines' | 'code' | 'choice' | 'one-of' | 'some-of';
  /** What to enter or choose, said when it is empty; left out: it may be empty. */
  required?: string;
  /** Left out: always. */
  isShown?: (values: FormValues) => boolean;
  /** For `number`. */
  bounds?: NumberBounds;
  /** For `choice`: the first one is the default. */
  options?: readonly Option[];
  /** For `one-of` and `some-of`. */
  load?: () => Promise<readonly Option[]>;
}

export type FormValues = Readonly<Record<string, string>>;

/** What is shown once, after the API has answered. */
export interface ShownOnce {
  /** What to copy. */
  text: string;
  /** What a QR code has. */
  qr?: string;
}

/** A form whose values become the body of a request. */
export interface ItemForm {
  /** Of the button that opens it, of its title and, for a new item, of the button that sends it. */
  label: string;
  fields: readonly FormField[];
  /** What the fields show at first. */
  values?: FormValues;
  body: (values: FormValues) => object;
  /** A secret in the answer; null without one. */
  once?: (answer: Readonly<Record<string, unknown>>) => ShownOnce | null;
}

/** The fields that a form shows. */
export function shownFields(fields: readonly FormField[], values: FormValues): readonly FormField[] {
  return fields.filter(({ isShown }) => isShown?.(values) ?? true);
}

/** A member of a request, an element of it, and what the API says about them: `acl.0: must be …`. */
const PLACED = /^(\w+)(?:\.([^:]+))?: (.+)$/s;

/** The API's problem with the field that it is about, if a form has one, as a detail under the name of the field. */
export function placedIn(fields: readonly FormField[], values: FormValues, problem: ApiProblem): ApiProblem {
  const [, member = '', element, text = ''] = PLACED.exec(problem.message) ?? [];
  const field = fields.find((each) => (each.member ?? each.name) === member);
  if (field === undefined) return problem;
  const { name, kind } = field;
  // Which of several lines it is.
  const line =
    element === undefined || kind !== 'lines' ? undefined : (linesOf(values[name])[Number(element)] ?? element);
  const said = line === undefined ? text : `${line}: ${text}`;
  return new ApiProblem(problem.status, problem.code, `${name}: ${said}`, { [name]: said });
}

/** The lines of a text that are not empty. */
export function linesOf(text = ''): string[] {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
}

/** The members with a text. */
export function filled(values: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const entries = Object.entries(values).map(([name, value = '']) => [name, value.trim()] as const);
  return Object.fromEntries(entries.filter(([, value]) => value !== ''));
}

/** `name=value` and `name: value` lines as an object. */
export function pairsOf(text = ''): Record<string, string> {
  const pairs = linesOf(text).map((line) => /^([^=:]*)[=:]?(.*)$/.exec(line) ?? ['', line, '']);
  return Object.fromEntries(pairs.map(([, name = '', value = '']) => [name.trim(), value.trim()]));
}

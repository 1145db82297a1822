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
  label: string;
  hint?: string;
  /**
   * `lines`: one value on each line; `code`: PEM or a policy; `choice`: a few fixed options; `one-of` and `some-of`: other
   * items, whose ids are the value, one on each line.
   */
  kind: 'text' | 'number' | 'lines' | 'code' | 'choice' | 'one-of' | 'some-of';
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
  /** Of the button that opens it, of its title and of the button that sends it. */
  label: string;
  fields: readonly FormField[];
  /** What the fields show at first. */
  values?: FormValues;
  body: (values: FormValues) => object;
  /** A secret in the answer; null without one. */
  once?: (answer: Readonly<Record<string, unknown>>) => ShownOnce | null;
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

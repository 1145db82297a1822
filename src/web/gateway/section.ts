import type { ComponentChildren, JSX } from 'preact';
import type { gateway } from './strings.ts';

export type SectionName = Exclude<keyof typeof gateway.sections, 'overview'>;

export interface Item {
  id: string;
}

export interface Column<T> {
  head: string;
  cell: (item: T) => ComponentChildren;
}

/** What one can do with an item; each has a dialog. */
export interface Action {
  /** Its part of the address. */
  name: string;
  label: string;
  /** @param done call it when something was changed */
  dialog: (close: () => void, done: () => void) => JSX.Element;
}

/** A field of the form that creates an item. */
export interface FormField {
  /** The member of the request's body. */
  name: string;
  label: string;
  hint?: string;
  kind: 'text' | 'lines' | 'yes-no';
  /** For `yes-no`. */
  options?: { yes: string; no: string };
  hints?: { yes: string; no: string };
}

export interface CreateForm {
  label: string;
  fields: readonly FormField[];
  /** The request's body from the values of the fields. */
  body: (values: Readonly<Record<string, string>>) => object;
}

/** A list of the dashboard: a resource of the management API. */
export interface Section<T extends Item = Item> {
  name: SectionName;
  path: string;
  listKey: string;
  /** The first one names the item. */
  columns: readonly Column<T>[];
  searchText: (item: T) => string;
  /** Whether it changes as agents come and go. */
  isLive: boolean;
  empty: { title: string; text: string; command?: string };
  actions: (item: T) => readonly Action[];
  create: CreateForm | null;
  /** The action whose dialog opens for a new item. */
  afterCreate?: string;
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

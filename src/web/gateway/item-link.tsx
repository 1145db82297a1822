import { type Signal, signal } from '@preact/signals';
import { createContext, type JSX } from 'preact';
import { useContext } from 'preact/hooks';
import { ApiProblem } from '../ui/api.ts';
import { linkTo } from '../ui/router.ts';
import type { Item, Section } from './section.ts';
import { api } from './session.ts';

/** All sections, which know what their items are called. */
export const Sections = createContext<readonly Section[]>([]);

const MAX_NAMES = 1_000;
/** Names by path; null while one is not known. */
const names = new Map<string, Signal<string | null>>();

/** Call this after a change: items may have other names now. */
export function forgetNames(): void {
  names.clear();
}

/** What people call an item; its id until that is known. */
export function ItemName({ id }: { id: string }): JSX.Element {
  const name = nameIn(useSectionOf(id), id);
  return name === null ? <code>{id}</code> : <span title={id}>{name}</span>;
}

/** A link to an item's page. */
export function ItemLink({ id }: { id: string }): JSX.Element {
  const section = useSectionOf(id);
  return section ? (
    <a href={linkTo(section.name, id)}>
      <ItemName id={id} />
    </a>
  ) : (
    <code>{id}</code>
  );
}

/** The section that has a page of an item; its id begins as the ids there do. */
export function useSectionOf(id: string): Section | undefined {
  return useContext(Sections).find(({ idPrefix }) => id.startsWith(idPrefix));
}

function nameIn(section: Section | undefined, id: string): string | null {
  if (section === undefined) return null;
  const path = `${section.path}/${encodeURIComponent(id)}`;
  const known = names.get(path);
  if (known) return known.value;
  if (names.size >= MAX_NAMES) names.clear();
  const name = signal<string | null>(null);
  names.set(path, name);
  api<Item>('GET', path).then(
    (item) => {
      name.value = section.nameOf(item);
    },
    (error: unknown) => {
      // It may be of another kind, or deleted.
      if (!(error instanceof ApiProblem)) throw error;
    },
  );
  return name.value;
}

import { type Signal, signal } from '@preact/signals';
import { createContext, type JSX } from 'preact';
import { useContext } from 'preact/hooks';
import { ApiProblem } from '../ui/api.ts';
import { linkTo } from '../ui/router.ts';
import type { Item, Section, SectionName } from './section.ts';
import { api } from './session.ts';

/** All sections by their names, which know what their items are called. */
export const Sections = createContext<Partial<Record<SectionName, Section>>>({});

const MAX_NAMES = 1_000;
/** Names by path; null while one is not known. */
const names = new Map<string, Signal<string | null>>();

/** Call this after a change: items may have other names now. */
export function forgetNames(): void {
  names.clear();
}

export interface ItemNameProps {
  section: SectionName;
  id: string;
}

/** What people call an item; its id until that is known. */
export function ItemName({ section, id }: ItemNameProps): JSX.Element {
  const name = nameIn(useContext(Sections)[section], id);
  return name === null ? <code>{id}</code> : <span title={id}>{name}</span>;
}

/** A link to an item's page. */
export function ItemLink({ section, id }: ItemNameProps): JSX.Element {
  return (
    <a href={linkTo(section, id)}>
      <ItemName section={section} id={id} />
    </a>
  );
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

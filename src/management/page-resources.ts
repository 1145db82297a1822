import type { z } from 'zod';
import { RESOURCES, type Resources } from './operations.ts';
import { type ReadableResource, type Resource, sortsOf } from './resources/resource.ts';

/** A resource without its schemas, in JSON. */
export interface PageResource
  extends Pick<ReadableResource, 'path' | 'idPrefix' | 'listKey' | 'table' | 'eventName' | 'label'> {
  /** Members that are shown as they are. */
  readonly members: readonly PageMember[];
  /** Whether the API searches its list. */
  readonly isSearched: boolean;
  /** What the API sorts its list by. */
  readonly sorts: readonly string[];
}

export interface PageMember {
  readonly name: string;
  readonly label: string;
  /** For who sends it; empty: nothing. */
  readonly hint: string;
  /** Whether a new one, or an existing one, can be given it. */
  readonly isSent: { readonly create: boolean; readonly update: boolean };
}

/** What the gateway's page needs to know of each resource, by the names of their families. */
export function pageResources(): Record<keyof Resources, PageResource> {
  return Object.fromEntries(
    Object.entries<ReadableResource & Partial<Resource>>(RESOURCES).map(([family, resource]) => [
      family,
      pageResource(resource),
    ]),
  ) as Record<keyof Resources, PageResource>;
}

function pageResource(resource: ReadableResource & Partial<Resource>): PageResource {
  const { path, idPrefix, listKey, table, eventName, label, shown = {}, create, update, filters } = resource;
  const [sent, changes] = [membersOf(create), membersOf(update)];
  const members = Object.entries(shown).map(([name, text]) => ({
    name,
    label: text,
    hint: (sent[name] ?? changes[name])?.description ?? '',
    isSent: { create: name in sent, update: name in changes },
  }));
  const isSearched = filters !== undefined && 'search' in filters.shape;
  const sorts = sortsOf(filters).filter((name) => !name.startsWith('-'));
  return { path, idPrefix, listKey, table, eventName, label, members, isSearched, sorts };
}

function membersOf(schema: z.ZodType | undefined): Readonly<Record<string, z.ZodType>> {
  return (schema as z.ZodObject | undefined)?.shape ?? {};
}

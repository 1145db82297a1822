import type { pageResources } from '../../management/page-resources.ts';

// vite.config.ts puts it here: the schemas that say it would take a parser with them.
declare const PAGE_RESOURCES: ReturnType<typeof pageResources>;

/** What the page needs to know of each resource of the management API, by the names of their families. */
export const RESOURCES = PAGE_RESOURCES;

import type { Attention, NeedsAttention } from '../../gateway/api/dashboard/overview.ts';
import type { Tone } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { spanSince } from '../ui/time-span.ts';
import { dateOf } from './cells.tsx';
import { type FilterValues, type Section, searchLink } from './section.ts';
import {
  authoritiesSection,
  certificatesSection,
  nameOfAuthority,
  nameOfCertificate,
} from './sections/certificates-section.tsx';
import { DEVICE_STATES, DEVICE_TONES, devicesSection } from './sections/devices-section.tsx';
import { certificateOf, domainsSection, NEEDS_ATTENTION } from './sections/domains-section.tsx';
import { edgesSection, nameOfEdge } from './sections/tls-edges-section.tsx';

/** What an operator should do something about. */
export interface Problem {
  id: string;
  title: string;
  detail: string;
  link: string;
}

/** Problems of one kind. */
export interface ProblemGroup {
  kind: keyof NeedsAttention;
  tone: Tone;
  label: string;
  first: readonly Problem[];
  /** How many more there are. */
  more: number;
  /** Where all of them are: the link, and in words. */
  all: string;
  where: string;
}

/** All problems in words, those that stop traffic first. */
export function problemGroups(attention: NeedsAttention): ProblemGroup[] {
  return (Object.keys(WORDS) as (keyof NeedsAttention)[])
    .map((kind) => groupOf(kind, attention))
    .filter(({ first }) => first.length > 0);
}

type ItemOf<Kind extends keyof NeedsAttention> = NeedsAttention[Kind]['first'][number];

interface Words<Item> {
  tone: Tone;
  label: string;
  section: Pick<Section, 'name' | 'title'>;
  /** Filters with which the list shows them. */
  limits?: FilterValues;
  /** The dialog that helps. */
  action?: string;
  of: (item: Item) => { title: string; detail: string };
}

const WORDS: { [Kind in keyof NeedsAttention]: Words<ItemOf<Kind>> } = {
  expired: {
    tone: 'bad',
    label: 'Expired',
    section: certificatesSection,
    of: (certificate) => {
      const date = dateOf(certificate.not_after);
      const detail =
        certificate.issued_at === null
          ? `It was valid until ${date}. Clients refuse it: upload a new one.`
          : `It was valid until ${date}, and was not renewed. See its domain.`;
      return { title: `The certificate ${nameOfCertificate(certificate)} has expired`, detail };
    },
  },
  expiredAuthorities: {
    tone: 'bad',
    label: 'Expired',
    section: authoritiesSection,
    of: (authority) => ({
      title: `The certificate ${nameOfAuthority(authority)} has expired`,
      detail: `It was valid until ${dateOf(authority.not_after)}. Clients with its certificates are refused.`,
    }),
  },
  failedDomains: {
    tone: 'bad',
    label: NEEDS_ATTENTION,
    section: domainsSection,
    limits: { state: 'failing' },
    of: (domain) => ({
      title:
        domain.certificate === null
          ? `No certificate for ${domain.domain}`
          : `The certificate of ${domain.domain} cannot be renewed`,
      detail: certificateOf(domain).detail ?? '',
    }),
  },
  idleEdges: {
    tone: 'bad',
    label: 'Offline',
    section: edgesSection,
    of: (edge) => {
      const name = nameOfEdge(edge);
      return edge.hasGroup
        ? {
            title: `${name} has no tunnel online`,
            detail: 'Its tunnel group matches no tunnel, so clients get no answer.',
          }
        : { title: `${name} has no backend`, detail: 'Its backend was deleted. Choose another one.' };
    },
  },
  offline: {
    tone: DEVICE_TONES.offline,
    label: DEVICE_STATES.offline,
    section: devicesSection,
    limits: { state: 'offline' },
    of: ({ name, last_seen_at, created_at }) => ({
      title: `${name} is offline`,
      detail: `Last seen ${spanSince(last_seen_at ?? created_at)} ago. Check its power and network.`,
    }),
  },
  expiring: {
    tone: 'warning',
    label: 'Expires soon',
    section: certificatesSection,
    of: (certificate) => ({
      title: `The certificate ${nameOfCertificate(certificate)} expires soon`,
      detail: `It is valid until ${dateOf(certificate.not_after)}. Upload a new one before.`,
    }),
  },
  neverOnline: {
    tone: DEVICE_TONES.never,
    label: DEVICE_STATES.never,
    section: devicesSection,
    limits: { state: 'never' },
    of: ({ name }) => ({
      title: `${name} is offline`,
      detail: 'It has joined, but was never online. Check that the agent runs on it.',
    }),
  },
  pending: {
    tone: DEVICE_TONES.pending,
    label: DEVICE_STATES.pending,
    section: devicesSection,
    limits: { state: 'pending' },
    action: 'approve',
    of: ({ name, created_at }) => ({
      title: `${name} waits for approval`,
      detail: `It asked ${spanSince(created_at)} ago. Approve it only if you know the device.`,
    }),
  },
};

function groupOf<Kind extends keyof NeedsAttention>(kind: Kind, attention: NeedsAttention): ProblemGroup {
  const { total, first }: Attention<ItemOf<Kind>> = attention[kind];
  const { tone, label, section, limits = {}, action, of } = WORDS[kind];
  const found = Object.keys(limits).length > 0 ? label : '';
  return {
    kind,
    tone,
    label,
    first: first.map((item) => ({
      id: item.id,
      ...of(item),
      link: linkTo(section.name, item.id, ...(action === undefined ? [] : [action])),
    })),
    more: total - first.length,
    all: searchLink(section.name, '', limits),
    where: found === '' ? section.title : `${section.title}, “${found}”`,
  };
}

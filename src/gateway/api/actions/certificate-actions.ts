import { certificateAuthorities, tlsCertificates } from '../../../management/resources/certificate.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import { readAuthority, readUploadedPair } from '../../certificates/certificate-upload.ts';
import {
  CERTIFICATES_LISTED_BY,
  type CertificateAuthorityRow,
  type TlsCertificateRow,
} from '../../store/certificates.ts';
import type { ApiContext } from '../api-context.ts';
import type { Actions } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { createRow, type Stored, storedActions } from './stored-actions.ts';

export function certificateActions(context: ApiContext) {
  return {
    tlsCertificates: tlsCertificateActions(context),
    certificateAuthorities: certificateAuthorityActions(context),
  };
}

function tlsCertificateActions(context: ApiContext): Actions<typeof tlsCertificates> {
  const { store, links } = context;
  const { tlsCertificates: rows } = store;
  const stored: Stored<typeof tlsCertificates, TlsCertificateRow> = {
    resource: tlsCertificates,
    rows,
    listedBy: CERTIFICATES_LISTED_BY,
    shown: ({ private_key: _, facts, ...row }) => ({ ...row, uri: links.of(tlsCertificates, row.id), ...facts }),
    checkRemoval: ({ issued_at }) => {
      if (issued_at === null) return;
      throw refuse(
        400,
        1966,
        "the certificate belongs to a reserved domain's certificate management policy; detach the policy instead",
      );
    },
    inUse: [WRONG_VALUE, 'in use: a reserved domain uses this certificate'],
  };
  return {
    ...storedActions(context, stored),
    async create(body, caller) {
      const { certificate_pem, private_key_pem } = body;
      const { leaf, key } = readUploadedPair(certificate_pem, private_key_pem);
      const facts = (await loadFacts()).certificateFacts(leaf, key);
      return createRow(context, stored, body, caller, (common) => ({
        ...{ ...common, certificate_pem, facts, issued_at: null },
        private_key: rows.seal(private_key_pem, common.id),
      }));
    },
  };
}

function certificateAuthorityActions(context: ApiContext): Actions<typeof certificateAuthorities> {
  const { store, links } = context;
  const stored: Stored<typeof certificateAuthorities, CertificateAuthorityRow> = {
    resource: certificateAuthorities,
    rows: store.certificateAuthorities,
    shown: ({ facts, ...row }) => ({ ...row, uri: links.of(certificateAuthorities, row.id), ...facts }),
    inUse: [WRONG_VALUE, 'in use: a TLS edge uses this certificate authority'],
  };
  return {
    ...storedActions(context, stored),
    async create(body, caller) {
      const { ca_pem } = body;
      const certificate = readAuthority(ca_pem);
      const facts = (await loadFacts()).authorityFacts(certificate);
      return createRow(context, stored, body, caller, (common) => ({ ...common, ca_pem, facts }));
    },
  };
}

/** Loaded on first use: parsing X.509 extensions takes a library of 7 MB in memory. */
function loadFacts(): Promise<typeof import('../../certificates/certificate-facts.ts')> {
  return import('../../certificates/certificate-facts.ts');
}

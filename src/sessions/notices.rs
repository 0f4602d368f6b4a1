//! Losses as they are told to a holder, and the text of their ids.

use tidegate_core::token::{Notice, NoticeId, PartitionId};
use tidegate_core::trail::Loss;

/// The notices of losses in `partition`, told at `told_seconds` since 1970.
pub fn losses_to_notices(
    partition: PartitionId,
    losses: &[Loss],
    told_seconds: u64,
) -> Vec<Notice> {
    let notice = |loss: &Loss| {
        let Loss { kind, lost, child, future: _ } = *loss;
        Notice { partition, kind, lost, child, told_seconds }
    };
    losses.iter().map(notice).collect()
}

/// The id of a notice as the API shows it: 16 hex digits.
pub fn notice_id_text(id: NoticeId) -> String {
    format!("{:016x}", id.value())
}

/// The id a text shows; `None` if it is not 16 hex digits.
pub fn parse_notice_id(text: &str) -> Option<NoticeId> {
    let plain = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !plain {
        return None;
    }
    u64::from_str_radix(text, 16).ok().map(NoticeId::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_id_is_refused() {
        let texts = [
            "",
            "0",
            "00000000000000000",
            "000000000000000g",
            "+000000000000001",
            "0x00000000000001",
        ];
        for text in texts {
            assert_eq!(parse_notice_id(text), None, "{text:?}");
        }
    }

    #[test]
    fn ids_return() {
        for value in [0, 1, 0xABCD_0000_1234_5678, u64::MAX] {
            let text = notice_id_text(NoticeId::new(value));
            assert_eq!((text.len(), parse_notice_id(&text)), (16, Some(NoticeId::new(value))));
        }
    }
}

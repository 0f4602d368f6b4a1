//! Losses as they are told to a holder, and the text of their ids.

use tidegate_core::position::Lsn;
use tidegate_core::token::{Notice, NoticeId, PartitionId};
use tidegate_core::trail::Loss;

/// The notices of losses in `partition`, told at `told_seconds` since 1970.
pub fn losses_to_notices(
    partition: PartitionId,
    losses: &[Loss],
    told_seconds: u64,
) -> Vec<Notice> {
    let notice = |loss: &Loss| {
        let Loss { kind, lost, child, upto, future: _ } = *loss;
        Notice { partition, kind, lost, child, upto, told_seconds }
    };
    losses.iter().map(notice).collect()
}

/// The id of a notice as the API shows it: 16 hex digits of the loss, and up to where it was told,
/// where that is known.
pub fn notice_id_text(id: NoticeId) -> String {
    let (loss, upto) = (id.loss(), id.upto().scalar());
    if upto == 0 { format!("{loss:016x}") } else { format!("{loss:016x}-{upto:x}") }
}

/// The id a text shows; `None` if [`notice_id_text`] writes no such text.
pub fn parse_notice_id(text: &str) -> Option<NoticeId> {
    let (loss, upto) = text.split_once('-').unwrap_or((text, "0"));
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|_| plain)
    };
    let id = NoticeId::new(number(loss)?, Lsn::new(number(upto)?).into());
    (notice_id_text(id).eq_ignore_ascii_case(text)).then_some(id)
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
            "0000000000000001-",
            "0000000000000001-0",
            "0000000000000001-05",
            "0000000000000001-10000000000000000",
            "0000000000000001-5-5",
        ];
        for text in texts {
            assert_eq!(parse_notice_id(text), None, "{text:?}");
        }
    }

    #[test]
    fn ids_return() {
        for value in [0, 1, 0xABCD_0000_1234_5678, u64::MAX] {
            for upto in [0, 5, u64::MAX] {
                let id = NoticeId::new(value, Lsn::new(upto).into());
                assert_eq!(parse_notice_id(&notice_id_text(id)), Some(id));
            }
        }
    }
}
